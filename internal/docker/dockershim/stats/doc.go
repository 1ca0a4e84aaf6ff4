// Package stats answers the calls of the CRI for the usage of containers and pods. The index says which of them run,
// and package dockerstats reads their usage. It stores nothing and asks the Engine nothing but its data root.
package stats
