// Package lock has the locks of Berth. Root lets one agent at a time work on a root directory, and Command one command.
// Acquire waits for a lock file that several agents share (--lock-file). Try takes the lock of a file or fails, and
// TryFor waits for it for a limited time. Keyed has a lock for each key within this process.
package lock
