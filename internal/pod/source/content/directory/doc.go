// Package directory reads the manifests of a directory, or one file, and follows their changes with inotify and a
// periodic check. It owns the state of each file and writes to a Sink.
package directory
