// Package boot identifies the boot of the machine. What a process has written, and no program has synced, is there as
// long as the boot lasts, whatever happens to the process.
package boot
