// Package store has the table in which a fact lives: immutable values by key, a revision that only grows, and watchers
// of one key or of all.
//
// A table has one writer by convention; the package that owns it names it. Everybody else reads rows or snapshots, or
// watches. A table has only the current state: no history, no disk, no schema.
//
//	writer --Put/Delete--> rows --Get, Snapshot--> readers
//	                        |
//	                        +--> pending changes of each watcher --Changes--> one goroutine
//
// A watcher keeps the last state of each key that its reader has not read yet. So a slow reader costs at most one entry
// for each key and never delays the writer. It may miss states in between, but never the last one.
package store
