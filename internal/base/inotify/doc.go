// Package inotify reports changes of files and directories as the kernel does (inotify(7)). fsnotify serves where it is
// enough; it does not offer CLOSE_WRITE, IN_OPEN or one-shot watches, nor a watch on an open file.
//
//	Instance  the kernel's object: watches are added and removed, and the caller reads the events
//	Watcher   an Instance with a goroutine that passes its events on through a channel
package inotify
