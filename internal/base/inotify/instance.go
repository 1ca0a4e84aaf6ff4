package inotify

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Watch is a watch descriptor. It is unique within its instance.
type Watch int32

// Event is one inotify event. Name is empty if the event is about the watched file or directory itself. Cookie joins
// the two events of a rename.
type Event struct {
	Watch  Watch
	Mask   uint32
	Cookie uint32
	Name   string
}

// Overflowed reports whether the kernel dropped events before this one. Then every watched file may have changed.
func (e Event) Overflowed() bool { return e.Mask&unix.IN_Q_OVERFLOW != 0 }

// Instance is an inotify instance. A user has 128 of them unless fs.inotify.max_user_instances says otherwise. Its
// methods may be called from any goroutine.
type Instance struct {
	file *os.File
	fd   int
}

// Open makes an instance without watches.
func Open() (*Instance, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if errors.Is(err, unix.EMFILE) {
		return nil, fmt.Errorf("create inotify instance: %w (see the sysctl fs.inotify.max_user_instances)", err)
	}
	if err != nil {
		return nil, fmt.Errorf("create inotify instance: %w", err)
	}
	return &Instance{file: os.NewFile(uintptr(fd), "inotify"), fd: fd}, nil
}

// Add watches path for the events of mask (unix.IN_...). For a path that is watched already it changes the mask and
// returns the same watch. The error is an *os.PathError.
func (i *Instance) Add(path string, mask uint32) (Watch, error) {
	n, err := unix.InotifyAddWatch(i.fd, path, mask)
	if errors.Is(err, unix.ENOSPC) {
		err = fmt.Errorf("no watch is free (see the sysctl fs.inotify.max_user_watches): %w", err)
	}
	if err != nil {
		return -1, &os.PathError{Op: "watch", Path: path, Err: err}
	}
	return Watch(n), nil
}

// AddFile watches an open file, whatever its name is by now.
func (i *Instance) AddFile(f *os.File, mask uint32) (Watch, error) {
	return i.Add(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), mask)
}

// Remove ends a watch. It is harmless if the watch ended before, with its file.
func (i *Instance) Remove(w Watch) { _, _ = unix.InotifyRmWatch(i.fd, uint32(w)) }

// Read waits for the next events. buf holds them meanwhile; with 4 KiB at least one event fits. The error is
// os.ErrClosed after Close, and os.ErrDeadlineExceeded after the time given to SetReadDeadline.
func (i *Instance) Read(buf []byte) ([]Event, error) {
	n, err := i.file.Read(buf)
	if err != nil {
		return nil, err
	}
	return parse(buf[:n]), nil
}

// SetReadDeadline ends a Read that waits at t.
func (i *Instance) SetReadDeadline(t time.Time) error { return i.file.SetReadDeadline(t) }

// Close ends all watches, and a Read that waits.
func (i *Instance) Close() error { return i.file.Close() }

// parse decodes struct inotify_event: wd, mask, cookie, length, name.
func parse(buf []byte) []Event {
	const head = unix.SizeofInotifyEvent
	var events []Event
	for len(buf) >= head {
		number := func(i int) uint32 { return binary.NativeEndian.Uint32(buf[4*i:]) }
		end := min(head+int(number(3)), len(buf))
		name, _, _ := bytes.Cut(buf[head:end], []byte{0})
		events = append(events, Event{Watch: Watch(number(0)), Mask: number(1), Cookie: number(2), Name: string(name)})
		buf = buf[end:]
	}
	return events
}
