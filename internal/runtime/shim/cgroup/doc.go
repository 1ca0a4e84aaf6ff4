// Package cgroup reads the statistics of containers from their cgroups, watches them for OOM kills, and kills all their
// processes. It never touches a cgroup that is not the container's own.
package cgroup
