// Package offline keeps what a node needs to start its cluster's pods again when
// it boots and the API server does not answer: the pods that it had accepted, as
// the API server last had them, with the objects that they name and the tokens
// that they were given.
//
// It owns
//
//	<root>/offline/pods/UID       one pod, encrypted, in a file of mode 0600
//	<root>/offline/confirmed      when the API server was last heard to want them
//	<root>/offline/key            the key, unless another file is named
//
// and is the only writer of all three. Nothing of it is read while the API server
// answers, and nothing of it is in the way of a pod's start.
//
// A kubelet starts none but static pods then. The annotation of the kubelet's
// bootstrap checkpoint (Kubernetes 1.9 to 1.18) still marks pods that are kept
// always.
package offline
