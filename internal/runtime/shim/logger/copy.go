package logger

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// copier writes a copy of the output to a FIFO, which the runtime reads for attached clients. While it has no reader,
// nothing is written. It is open until the output has ended, so that a reader sees that end and not another.
type copier struct {
	path string
	file *os.File
	// stalled is set while the reader does not read. The copy then has gaps.
	stalled bool
	closed  bool
}

// patience is how long a copy may take. The container waits meanwhile, so that an attached client gets all output.
const patience = time.Second

// open opens the FIFO.
func (c *copier) open() bool {
	if c.file == nil {
		const flags = unix.O_NONBLOCK | unix.O_CLOEXEC
		reader, err := unix.Open(c.path, unix.O_RDWR|flags, 0) // one that only writes cannot be the first to open it
		if err != nil {
			return false
		}
		defer func() { _ = unix.Close(reader) }()
		fd, err := unix.Open(c.path, unix.O_WRONLY|flags, 0)
		if err != nil {
			return false
		}
		c.file = os.NewFile(uintptr(fd), c.path)
	}
	return true
}

// write copies output. A reader that does not read delays it once.
func (c *copier) write(b []byte) {
	if len(b) == 0 || c.closed || !c.open() {
		return
	}
	if !c.hasReader() {
		c.stalled = false
		return
	}
	if c.stalled {
		n := 0
		raw, err := c.file.SyscallConn()
		if err == nil {
			_ = raw.Control(func(fd uintptr) { n, _ = unix.Write(int(fd), b) })
		}
		c.stalled = n < len(b)
		return
	}
	_ = c.file.SetWriteDeadline(time.Now().Add(patience))
	_, err := c.file.Write(b)
	c.stalled = errors.Is(err, os.ErrDeadlineExceeded)
}

// hasReader reports whether the FIFO has a reader.
func (c *copier) hasReader() (has bool) {
	raw, err := c.file.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) {
		poll := []unix.PollFd{{Fd: int32(fd)}}
		_, err := unix.Poll(poll, 0)
		has = err == nil && poll[0].Revents&unix.POLLERR == 0
	})
	return has
}

// unread reports whether the reader has not read all of the copy.
func (c *copier) unread() (unread bool) {
	if c.file == nil || c.stalled || !c.hasReader() {
		return false
	}
	raw, err := c.file.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) {
		n, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ)
		unread = err == nil && n > 0
	})
	return unread
}

func (c *copier) close() {
	if c.file != nil {
		_ = c.file.Close()
	}
	c.file, c.closed = nil, true
}
