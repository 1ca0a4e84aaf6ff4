// Package store is the table a fact lives in: keyed, immutable values, a
// revision that only grows, and watchers that are woken by key or by any change.
//
// A table has one writer by convention; its owner names it. Everybody else reads
// single rows, snapshots, or watches. It holds current state and nothing else:
// no history, no disk, no schema.
//
//	writer --Put/Delete--> rows --Get, Snapshot--> readers
//	                        |
//	                        +--> pending changes of each watcher --Changes--> one goroutine
//
// What a watcher has not looked at yet is kept as the last state of each key,
// so that a slow reader costs at most one entry for each key and never holds up
// the writer. It misses the states in between, never the last one.
package store
