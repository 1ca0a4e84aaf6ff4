package pidfd

import (
	"time"

	"golang.org/x/sys/unix"
)

// Ended reports whether the process of a pidfd has ended with all its threads, also if its parent has not yet waited
// for it. For the pidfd of a thread it reports whether the thread has ended.
func Ended(fd int) bool { return Await(fd, 0) }

// Await waits until Ended is true, for at most limit, and returns the last answer. It occupies a thread meanwhile.
func Await(fd int, limit time.Duration) (ended bool) {
	for end := time.Now().Add(limit); ; {
		left := max(0, time.Until(end))
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds()))
		if err != unix.EINTR {
			return n > 0 || err != nil
		}
	}
}
