// Package cgroupfile reads the values in the files of one cgroup and compares them with the expected values, on version
// 1 and 2 of the hierarchy. It knows how the kernel spells and rounds values. It can kill the processes of a
// cgroup. It knows no pods, and makes and removes no cgroups. Packages cgroup, placement, drift and eviction use it.
package cgroupfile
