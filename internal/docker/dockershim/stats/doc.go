// Package stats answers the calls of the CRI for the usage of containers and pods. The index knows the running ones,
// and package dockerstats reads their usage. Package stats stores nothing, and asks the Engine only for its data root.
package stats
