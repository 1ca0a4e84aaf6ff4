// Package streamserver is the server for the URLs with which a CRI runtime answers exec, attach and port-forward. It is
// k8s.io/cri-streaming with bounds on what its clients can use.
package streamserver
