// Package joined measures two nodes of a real cluster: Berth with its own runtime, and the kubelet of the control
// plane's version on the machine's containerd. It owns the control plane and both nodes, which take turns. It also
// measures many nodes of Berth in one process, on fake runtimes. It returns the results to bench.
package joined
