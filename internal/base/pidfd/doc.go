// Package pidfd waits for the end of a process or a thread by its descriptor (pidfd_open(2)). It owns no descriptor.
package pidfd
