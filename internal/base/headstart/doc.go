// Package headstart begins a wait of the kernel before the work that would meet it.
//
// A write to any cgroup.procs waits for a grace period of RCU, about 12 ms, unless another such write was less than 15
// ms ago (cgroup_threadgroup_rwsem). The first process of each pod and of each container is moved into its cgroup, so
// each of them would wait. The package writes a process into the cgroup where it is already, which changes nothing, as
// soon as it is known that a process will be moved soon, and again until the time is over.
package headstart
