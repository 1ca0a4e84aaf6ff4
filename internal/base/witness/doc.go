// Package witness reports that a process was killed although it cannot end.
//
// A thread that waits for a file system may wait without regard of signals. Until it goes on, the kernel keeps all
// descriptors of its process, and reports the end of the process to nobody. The witness is a thread that does nothing.
// It ends at once when its process is killed, and the kernel reports that since Linux 6.9.
package witness
