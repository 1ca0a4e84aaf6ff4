// Package logger writes the output of containers to their logs, in the CRI's format: a line of output becomes a line
// "TIME stdout F TEXT". Long lines are split into parts ("P") of 16 KiB.
//
// It owns the current file of each log and rotates it where the bytes are written. The agent compresses rotated files,
// and package podlog reads all of them. Other processes may rename the current file: the next write creates it again.
//
//	container --> FIFO --splice--> spool --> log file
//	                                  \---> copy for attached clients
//
// A logger may be killed at any time, and the next one continues without losing or doubling a line:
//
//   - The kernel moves output from the FIFO to a file (the spool), and a signal cannot come between the two ends.
//   - The spool has a header: how far its content is in the log, and the place in the log where that content ends.
//   - A next logger counts the lines that are in the log after this place, and skips as many of the spool's content.
//     Parts of lines depend on the content alone, never on the time of reading.
//
// A log that cannot be written (a full disk) does not stop the container: the lines are dropped and counted.
package logger
