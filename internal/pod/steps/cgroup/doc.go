// Package cgroup owns the cgroups above the containers: one that holds all
// pods, one for each of the QoS classes Burstable and BestEffort, and one for
// each pod. The containers' own are the runtime's.
//
//	cgroupfs   /kubepods[/burstable|/besteffort]/pod<uid>
//	systemd    kubepods.slice[/kubepods-burstable.slice]/kubepods[-burstable]-pod<uid>.slice
//
// The names are the kubelet's, so that each finds the other's pods. Guaranteed
// pods stand directly below kubepods.
//
// A pod's bounds are decided by ForPod, a pure function. Version 1, version 2
// and version 1 with an empty version 2 beside it (hybrid) are served; a
// controller that the host lacks is left out and told once. Nothing about
// cgroups is kept but what the kernel has: Teardown and Orphans work from the
// directories.
package cgroup
