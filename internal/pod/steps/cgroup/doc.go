// Package cgroup owns the cgroups above the containers: one for all pods, one for each of the QoS classes Burstable and
// BestEffort, and one for each pod. The containers' own cgroups belong to the runtime.
//
//	cgroupfs   /kubepods[/burstable|/besteffort]/pod<uid>
//	systemd    kubepods.slice[/kubepods-burstable.slice]/kubepods[-burstable]-pod<uid>.slice
//
// The names are the kubelet's, so that Berth and a kubelet find each other's pods. Guaranteed pods are directly below
// kubepods.
//
// ForPod, a pure function, decides a pod's limits. Package hierarchy below this one writes them. The kernel is the only
// store of cgroups: Teardown and Orphans read the directories.
package cgroup
