// Package cgroupmount saves a list of all mounts for each container on a machine with cgroup version 1.
//
// For a container in the host's cgroup namespace, the CRI plugin looks for two mount options of /sys/fs/cgroup, which
// only version 2 has. For that it reads the list of all mounts, which has some for each pod. With 20 pods it was a
// tenth of the agent's CPU time for a restart.
package cgroupmount
