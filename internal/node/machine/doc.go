// Package machine holds what a machine is built of: its CPUs with their cores,
// sockets, caches and NUMA nodes, and the memory of each node. A Machine is a
// value, read once from sysfs; the allocators of CPUs, memory and devices decide
// with it and tests bring those of other machines.
package machine
