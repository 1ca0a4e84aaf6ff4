// Package topology decides on which NUMA nodes the resources of a pod are placed. It merges the hints of the CPU,
// memory and device allocators into one choice. It is pure.
package topology
