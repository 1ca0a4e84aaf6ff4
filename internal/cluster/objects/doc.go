// Package objects reads the objects that the pods of this node name from the API server. It reads nothing else, because
// the Node authorizer allows nothing else.
//
// It owns the list of objects to follow. An object is followed while at least one pod names it. It is stored in the
// table of package object through a Sink. Received reports whether the API server has answered for an object at all.
//
//	ConfigMap, Secret      one list and one watch of the single object (Watch), or one read each TTL (Cache) or
//	                       syncFrequency (Get); an immutable one is not watched after it was read
//	RuntimeClass           one list and one watch of the single object
//	PersistentVolumeClaim  read until it is bound, and when another pod names it
//	PersistentVolume       like the claim that is bound to it
//	Service                all of a namespace with pods that link to services, and default/kubernetes; kept here,
//	                       not in the table
//	ClusterTrustBundle     all, while a pod projects one; kept here
//	PodCertificateRequest  all of this node, while a pod projects a certificate; kept here
//
// If the API server is away, objects stay as they were last read. An agent that starts while it is away may get the
// saved objects of its last run (Restore). Followers start with these, so that they too are replaced or dropped when
// the API server answers or no pod names them any longer. A refused read is retried soon, because the authorizer
// learns of a pod on a node a moment after the node does.
//
// Pods of manifests can use only objects of manifests. From the cluster they get RuntimeClasses and services, as with
// the kubelet.
package objects
