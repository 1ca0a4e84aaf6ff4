// Package cri is the boundary to the container runtime: a CRI v1 client whose
// concerns are one visible stack of interceptors, and the runtime's health.
//
// It owns the deadline of every call, the text of every runtime error, the
// kubelet_runtime_operations_* metrics, one span per call, and the checks that
// refuse answers no caller could work with. It knows nothing of pods: callers
// use the generated client interfaces and declare the few methods they need.
//
// Everybody who talks to a runtime reads it; it writes to no table. Whether the
// runtime is the embedded one, containerd, CRI-O or Docker's makes no difference
// here: package critest holds the suite that each of them passes.
//
// What Monitor sees of a runtime, as a value of type Health:
//
//	            first Status
//	unchecked ---------------> answering <------------------+
//	    |                          | a call fails           | Status answers
//	    | Status fails             v                        |
//	    +----------------------> failing --30 s--> not ready
package cri
