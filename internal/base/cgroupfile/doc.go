// Package cgroupfile reads the values in the files of one cgroup and says how
// they differ from those that are wanted, on version 1 and 2 of the hierarchy.
// It knows how the kernel spells and rounds them; it does not know pods, and does
// not make or remove cgroups. Packages cgroup, placement and drift use it.
package cgroupfile
