// Package disk is a disk with a volatile write cache, for machines that lose power.
//
// It serves a file to one qemu over NBD. A write is in the cache until the machine flushes the cache. Cut ends the
// cache as the loss of power does: each write that was not flushed is kept, lost, or torn at the bounds of sectors.
package disk
