// Package dockerlog copies the output of Docker's containers to their logs, in the CRI's format.
//
// Docker writes the output of a container to files of its json-file driver, which it rotates by itself (Options). A
// Copier follows these files and appends each of their lines to the container's log as it is: the same time, and a part
// of a long line as a part. "docker logs" goes on working, and each log is on disk twice.
//
//	container --> dockerd --> ID-json.log --rename--> ID-json.log.1 --> ... --> removed
//	                              \__________ Copier __________/
//	                                            |
//	                                            v
//	                             0.log --rename, Reopen--> 0.log.20260301-121000
//
// Nothing else is stored: a next Copier finds in the log itself where to continue. The last line has a time and a
// stream. The parts of one long line share their time, so the Copier also counts the lines at the end that share both.
// It continues after that many of them in Docker's files.
//
// Docker reports the exit of a container after it has written all output of it. Drain therefore completes the log: call
// it before an exit is reported, and before the container is removed.
//
// What is lost: Docker removes its oldest file when it begins another one. A Copier that runs reads about ten times as
// fast as dockerd writes (240 MB/s against 18 MB/s, which is 100,000 lines of 100 bytes a second, on two busy cores),
// and lost nothing of a container that wrote at full speed. While no Copier runs, output is lost once a container has
// written more than (MaxFiles-1) * MaxSize bytes of json-file: 32 MiB, which is 2 s of output at full speed and 5 min
// at 1,000 lines of 100 bytes a second. Whole files are lost then, the oldest first, and the Copier warns. A file that
// it has open is never lost. Docker writes text: of output that is no UTF-8 it keeps U+FFFD.
//
// A log that cannot be written (a full disk) delays nothing but itself: its lines wait in Docker's files, and the
// Copier tries again every second.
package dockerlog
