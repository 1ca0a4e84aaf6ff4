// Package dockerlog copies the output of Docker's containers to their logs, in the CRI's format.
//
// Docker writes the output of a container to files of its json-file driver, which it rotates by itself (Options). A
// Copier follows these files and appends each of their lines to the container's log as it is: the same time, and a part
// of a long line as a part. "docker logs" still works, and each log is on disk twice.
//
//	container --> dockerd --> ID-json.log --rename--> ID-json.log.1 --> ... --> removed
//	                              \__________ Copier __________/
//	                                            |
//	                                            v
//	                             0.log --rename, Reopen--> 0.log.20260301-121000
//
// A Copier stores nothing else: the next Copier finds in the log itself where to continue. The last line has a time and
// a stream. The parts of one long line share their time. So the Copier also counts the lines at the end of the log with
// this time and stream. In Docker's files it continues after as many such lines.
//
// Docker reports the exit of a container after it has written all of the container's output. So Drain completes the
// log. Call it before you report an exit, and before you remove the container.
//
// Output can be lost: Docker removes its oldest file when it begins another one. A running Copier is about ten times as
// fast as dockerd, and lost nothing of a container that wrote at full speed. On two busy cores it read 240 MB/s, and
// dockerd wrote 18 MB/s, which is 100,000 lines of 100 bytes a second. While no Copier runs, output is lost once a
// container has written more than (MaxFiles-1) * MaxSize bytes of json-file: 32 MiB, which is 2 s of output at full
// speed and 5 min at 1,000 lines of 100 bytes a second. Whole files are lost then, the oldest first, and the Copier
// warns. A file that it has open is never lost. Docker writes text only: it replaces output that is no UTF-8 by U+FFFD.
//
// A log that cannot be written (a full disk) delays no other log. Its lines wait in Docker's files, and the Copier
// retries every second.
package dockerlog
