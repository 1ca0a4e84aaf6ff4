// Package logrotate bounds the log files of containers.
//
// It owns the rotation of <pod log directory>/<container>/<n>.log: when a file
// is large enough, what the renamed one is called, which are compressed and
// which go. The runtime writes the files, podlog reads them, gc removes those of
// instances that are gone. What runs is read from the observed table.
//
//	0.log --rename--> 0.log.20260301-121000 --at the next one--> ....gz --> removed
//	  ^                       |
//	  +---ReopenContainerLog--+
//
// A log that nobody writes to costs nothing: inotify tells of the first write,
// once, and only then its size is looked at, after a delay that gets shorter the
// nearer and the faster the log comes to its limit (decide.go):
//
//	watched --write--> due in 100 ms to 1 s --size < limit--> watched
//	                          |
//	                     size >= limit --> rotated --> watched
//
// A file is at most the limit and what is written in the time between two looks
// larger: 100 ms at a steady rate, 1 s after a sudden change. There are never
// more files than the limit says, and one half made compressed one.
package logrotate
