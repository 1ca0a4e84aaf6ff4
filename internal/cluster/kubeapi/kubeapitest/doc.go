// Package kubeapitest runs a real Kubernetes control plane for tests: etcd and
// kube-apiserver, on request kube-controller-manager and kube-scheduler, all of
// one version, on loopback, with a certificate authority of its own.
//
// It is as strict as a cluster is: the Node and RBAC authorizers and the
// NodeRestriction plugin are on, nodes come with certificates of the group
// system:nodes, and kube-apiserver verifies the serving certificate of a node.
//
// A Cluster owns its processes and its directory. Both end with the test; the
// processes also when the test is killed, the directory then when the next
// cluster starts. Nodes reach the API server through a proxy of the Cluster,
// which can cut their connections and answer in the server's place; what the
// test itself does as admin goes past it.
//
// The servers are one program, bin/cluster, which "make cluster" builds.
package kubeapitest
