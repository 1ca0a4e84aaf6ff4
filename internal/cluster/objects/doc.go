// Package objects reads from the API server what the pods of this node name, and
// nothing else: the Node authorizer lets a node read no more.
//
// It owns which objects are followed. An object is followed from when the first
// pod names it until the last is gone. What is read goes to the table of package
// object through a Sink; Heard says of what the API server has told at all.
//
//	ConfigMap, Secret      one list and one watch of the single object (Watch), or
//	                       a read again each TTL (Cache, Get); an immutable one is
//	                       not watched after it was read
//	RuntimeClass           one list and one watch of the single object
//	PersistentVolumeClaim  read until it is bound, and when another pod names it
//	PersistentVolume       as the claim that is bound to it
//	Service                all of a namespace with pods that link to services, and
//	                       default/kubernetes; kept here, not in the table
//	ClusterTrustBundle     all, while a pod projects one; kept here
//
// An API server that is away ends nothing: what was read stays until it is
// heard that it has changed. An agent that begins while it is away may be told what
// there was when it was last heard (Restore): that is what followers begin with, so
// that it goes as everything else does, when no pod names it or the API server says
// so. A refused read is tried again soon, as the authorizer
// learns of a pod's node a moment after the node does.
//
// Pods of manifests may name objects of manifests only; of the cluster they have
// the RuntimeClasses and the services, as for the kubelet.
package objects
