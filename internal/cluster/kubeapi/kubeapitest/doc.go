// Package kubeapitest runs a real Kubernetes control plane for tests: etcd and kube-apiserver, and optionally
// kube-controller-manager and kube-scheduler. All have one version, listen on loopback, and use their own certificate
// authority.
//
// The control plane is as strict as a real cluster's. The Node and RBAC authorizers and the NodeRestriction plugin are
// on, nodes have certificates of the group system:nodes, and kube-apiserver verifies the serving certificates of nodes.
//
// A Cluster owns its processes and its directory. Both end with the test. If the test is killed, the processes end too,
// and the next cluster removes the directory. Nodes reach the API server through a proxy of the Cluster, which can cut
// their connections and respond in the server's place. The administrator's requests bypass the proxy.
//
// The servers are one program, bin/cluster, which "make cluster" builds.
package kubeapitest
