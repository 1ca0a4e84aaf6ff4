// Package logrotate limits the size of container logs.
//
// It rotates <pod log directory>/<container>/<n>.log: it decides when a file is large enough, names the renamed file,
// compresses rotated files and removes the oldest. When a file system runs full, RemoveOldest removes more of them. The
// runtime writes the files, package podlog reads them, and package gc removes the files of removed instances. The
// observed table says which containers run.
//
// The embedded runtime rotates a log itself before it reaches the limit. Then this package only finds another file at
// the path, compresses the rotated ones and removes the oldest. It rotates such a log if the limit has become smaller.
//
//	0.log --rename--> 0.log.20260301-121000 --next rotation--> ....gz --> removed
//	  ^                       |
//	  +---ReopenContainerLog--+
//
// A log without writes costs nothing. inotify reports the first write once. Only then, after a delay, is the size
// checked. The delay is shorter the closer the log is to its limit and the faster it grows (decide.go):
//
//	watched --write--> due in 100 ms to 1 s --size < limit--> watched
//	                          |
//	                     size >= limit --> rotated --> watched
//
// A file exceeds the limit by at most what is written between two checks: in 100 ms at a steady rate, in 1 s after a
// sudden change. There are never more files than the limit, plus one unfinished compressed file.
package logrotate
