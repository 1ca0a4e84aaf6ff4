// Package cpulist parses the kernel's lists and masks of CPUs and NUMA nodes. It bounds what a list costs, which may
// come from a damaged file, a runtime or a hook. It reads no files and knows no machine: package machine does.
package cpulist
