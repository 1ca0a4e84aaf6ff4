// Package dockerstats reports the resource usage of Docker's containers and of pods as messages of the CRI.
//
// It makes no call of Docker. A request reads the cgroups of a container, its /proc files and the network counters of
// its pod. It finds the cgroup by the container's first process, so that every cgroup driver and parent works. Between
// requests it reads nothing, but the files of cgroups stay open for the next request.
//
// The size of a writable layer cannot be read, only measured file by file. No request waits for that: a request returns
// the last size, or none before the first measurement. Run measures in the background. It measures one layer at a time,
// and only layers that a request has named. It measures a layer at most once a minute and for at most a twentieth of
// the time.
//
// It keeps the last CPU time and the last size of each container that a request has named in the last hour.
package dockerstats
