// Package lock has the locks of Berth. Root lets one agent at a time work on a root directory. Acquire waits for a lock
// file that several agents share (--lock-file), Try takes one or fails. Keyed has a lock for each key within this
// process.
package lock
