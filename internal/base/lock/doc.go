// Package lock has three locks. Root lets one agent at a time work on a root directory. Acquire takes a lock file that
// several agents share (--lock-file). Keyed has a lock for each key within this process.
package lock
