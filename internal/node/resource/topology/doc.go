// Package topology decides which NUMA nodes the resources of a pod come from. It merges the hints of the CPU, memory
// and device allocators into one choice. It is pure.
package topology
