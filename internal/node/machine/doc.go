// Package machine describes the hardware of a machine: its CPUs with their cores, sockets, caches and NUMA nodes, and
// the memory of each node. A Machine is a value, read once from sysfs. The allocators of CPUs, memory and devices use
// it, and tests use recorded machines.
package machine
