// Package placement measures how long it takes to choose the CPUs and NUMA nodes of a container. It runs no pods: it
// calls the decisions of package resource with machines of different sizes. It returns the results to bench.
package placement
