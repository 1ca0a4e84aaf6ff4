package logfile

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Written reports whether a process has a file open for writing: the kernel then grants no read lease (fcntl(2),
// F_SETLEASE). f must be open for reading only. On a file system without leases it is false.
func Written(f *os.File) bool {
	_, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
	if err == nil {
		_, _ = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
	}
	return errors.Is(err, unix.EAGAIN)
}
