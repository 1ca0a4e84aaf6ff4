// Package joined measures nodes of a real cluster: Berth with its own runtime, and beside it the kubelet
// of the control plane's version on the machine's containerd. It owns the control plane and both
// nodes, which take turns; bench reads what it found.
package joined
