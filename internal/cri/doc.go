// Package cri is the boundary to the container runtime. It holds a CRI v1 client, built as one visible stack of
// interceptors, and the runtime's health.
//
// The package owns the deadline and the span of every call, and the text of every runtime error. It also owns the
// kubelet_runtime_operations_* metrics and the checks that reject incomplete answers. It knows nothing of pods: callers
// use the generated client interfaces and declare the few methods they need.
//
// All code that calls a runtime uses this package. It writes to no table. It treats all runtimes alike: package critest
// holds the suite that the embedded runtime and an external containerd pass. CRI-O speaks the same protocol, but no
// test runs the suite on it.
//
// The states of a runtime, as Monitor observes them in a value of type Health:
//
//	            first Status
//	unchecked ---------------> answering <------------------+
//	    |                          | a call fails           | Status answers
//	    | Status fails             v                        |
//	    +----------------------> failing --30 s--> not ready
package cri
