// Package store provides the table that holds the agent's facts: immutable values by key, a revision that only grows,
// and watchers of one key or of all keys.
//
// By convention a table has one writer, which the owning package names. All other packages read rows or snapshots, or
// watch keys. A table has only the current state: no history, no disk, no schema.
//
//	writer --Put/Delete--> rows --Get, Snapshot--> readers
//	                        |
//	                        +--> pending changes of each watcher --Changes--> one goroutine
//
// A watcher keeps the last state of each key that its reader has not read yet. So a slow reader costs at most one entry
// for each key and never delays the writer. It may miss states in between, but never the last one.
package store
