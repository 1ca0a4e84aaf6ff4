// Package inotify watches one directory at a time for the manifest source. It
// owns the inotify instance and the goroutine that reads it.
package inotify
