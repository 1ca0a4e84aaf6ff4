// Package state reads and writes the kubelet's records of the CPUs and memory that pods hold: cpu_manager_state
// (versions 1 to 3) and memory_manager_state (versions 1 and 2). Reading them keeps the CPUs and memory of running pods
// when Berth replaces a kubelet; writing them does the same for the way back.
package state
