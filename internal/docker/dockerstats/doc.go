// Package dockerstats reports the resource usage of Docker's containers and of pods as messages of the CRI.
//
// It asks Docker nothing. A request reads the cgroups of a container, its /proc files and the network counters of its
// pod. The cgroup is found by the container's first process, so that every cgroup driver and parent works. Between
// requests nothing is read.
//
// The size of a writable layer cannot be read, only measured file by file. No request waits for that: it returns the
// last size, and there is none before the first. Run measures in the background: one layer at a time, a layer that a
// request has asked for, at most once a minute, and at most a twentieth of the time.
//
// It keeps the last CPU time and the last size of each container that was asked for in the last hour.
package dockerstats
