// Package memory decides from which NUMA nodes a container's memory and huge
// pages are to come (KEP-1769). All of it is pure.
//
// Wishes is what the topology merge asks, Allocate is asked with its answer; what
// others hold is a State. The answer becomes the container's cpuset.mems. How much
// a container may use is its cgroup's matter: nothing here is enforced by size.
package memory
