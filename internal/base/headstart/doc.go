// Package headstart starts a wait of the kernel early, so that the wait overlaps with other work.
//
// A write to any cgroup.procs waits for a grace period of RCU, about 12 ms. It does not wait if the last such write was
// less than 15 ms ago (cgroup_threadgroup_rwsem). The first process of each pod and of each container moves into its
// cgroup, so each move would wait. When a caller expects a move, the package writes its own process into the cgroup
// where it already is. This changes nothing. It repeats the write for a while, so that the move finds the wait done.
//
// During the wait the kernel makes and removes no cgroup. So a caller who has to make one does that first.
package headstart
