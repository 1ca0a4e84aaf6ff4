// Package offline saves what a node needs to start its cluster's pods when it boots and the API server does not
// answer: the pods that it had admitted, as the API server last sent them, with the objects that they name and their
// tokens.
//
// It owns
//
//	<root>/offline/pods/UID       one pod, encrypted, in a file of mode 0600
//	<root>/offline/index          which copies are current, and when the API server last answered, encrypted
//	<root>/offline/key            the key, unless another file is configured
//
// and is the only writer of these files. Nothing of it is used while the API server answers. It never delays the
// start of a pod.
//
// In this situation a kubelet starts only static pods. The annotation of the kubelet's bootstrap checkpoint
// (Kubernetes 1.9 to 1.18) still marks pods that are always saved.
package offline
