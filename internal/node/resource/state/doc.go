// Package state reads what a kubelet has written down of the CPUs and the memory
// of pods: cpu_manager_state (versions 1 to 3) and memory_manager_state (1 and 2).
// A node that is taken over keeps its pods where they are. It writes them too, for
// the way back.
package state
