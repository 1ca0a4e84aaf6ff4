// Package directory reads the manifests of a directory, or one file, and follows their changes with inotify and a
// periodic check. It owns the state of each file and writes to a Sink.
//
// It distinguishes a removed file from a missing directory. A directory is identified by its device, its inode and its
// file handle (object.Directory). So the empty directory below an unmounted mount point does not look like a directory
// whose files were removed. With Options.Keep, pods and objects of a missing directory stay wanted, and the copies on
// disk let an agent that starts meanwhile continue with them.
package directory
