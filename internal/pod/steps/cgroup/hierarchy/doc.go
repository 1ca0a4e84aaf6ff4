// Package hierarchy reads and writes the cgroup file system of this host.
//
// It works on cgroup v1, v2, and v1 with an empty v2 beside it (hybrid), and with two drivers: the file system itself,
// and systemd's slices. It makes, removes and reads single cgroups, sets their limits and kills the processes in them.
// A controller that the host lacks is left out and logged once.
//
// It knows no pods: package cgroup decides which cgroups exist and which limits they have. The kernel is the only
// store.
package hierarchy
