package inotify

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Masks for Aim: Entries is what is watched in a manifest directory. CLOSE_WRITE is what makes a written
// file be read at once and not in the middle of the writing: fsnotify does not
// offer it to its users, hence inotify itself (inotify(7)).
const (
	Entries = unix.IN_CLOSE_WRITE | unix.IN_MODIFY | unix.IN_CREATE | unix.IN_ATTRIB | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_DELETE |
		unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR
	// Arrival is for a directory above one that is not there yet.
	Arrival = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR
	// Lost are events after which the watch says nothing more of its path.
	Lost = unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_UNMOUNT | unix.IN_IGNORED | unix.IN_Q_OVERFLOW
)

// Event is one inotify event. Name is empty when it is about the directory itself.
type Event struct {
	Mask   uint32
	Cookie uint32
	Name   string
	watch  int32
}

// Watcher watches one directory at a time. It owns an inotify instance and
// the goroutine that reads it.
type Watcher struct {
	file   *os.File
	fd     int
	watch  int32
	events chan []Event  // batches as the kernel gives them
	done   chan struct{} // closed to end the reader
	ended  chan struct{} // closed when it has ended
}

// Start opens an inotify instance that watches nothing yet. Close ends it.
func Start() (*Watcher, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch files: inotify_init1: %w", err)
	}
	n := &Watcher{
		file:   os.NewFile(uintptr(fd), "inotify"),
		fd:     fd,
		watch:  -1,
		events: make(chan []Event),
		done:   make(chan struct{}),
		ended:  make(chan struct{}),
	}
	go n.read()
	return n, nil
}

// Aim watches path instead of what was watched before.
func (n *Watcher) Aim(path string, mask uint32) error {
	if n.watch >= 0 {
		_, _ = unix.InotifyRmWatch(n.fd, uint32(n.watch)) // gone already with its directory, or goes now
		n.watch = -1
	}
	watch, err := unix.InotifyAddWatch(n.fd, path, mask)
	if err != nil {
		return &os.PathError{Op: "watch", Path: path, Err: err}
	}
	n.watch = int32(watch)
	return nil
}

// Current says whether an event is of the present watch, and not of an earlier one.
func (n *Watcher) Current(e Event) bool {
	return e.watch == n.watch || e.Mask&unix.IN_Q_OVERFLOW != 0
}

// Events are read until Close.
func (n *Watcher) Events() <-chan []Event { return n.events }

// Close ends the watch, and returns when nothing of it runs.
func (n *Watcher) Close() {
	close(n.done)
	_ = n.file.Close() // ends the read; there is nothing to lose
	<-n.ended
}

// read passes on what the kernel gives, one batch for each read.
func (n *Watcher) read() {
	defer close(n.ended)
	buf := make([]byte, 64<<10)
	for {
		size, err := n.file.Read(buf)
		if err != nil {
			return
		}
		select {
		case n.events <- parseEvents(buf[:size]):
		case <-n.done:
			return
		}
	}
}

// parseEvents cuts a buffer into struct inotify_event: wd, mask, cookie, length, name.
func parseEvents(buf []byte) []Event {
	const head = unix.SizeofInotifyEvent
	var events []Event
	for len(buf) >= head {
		number := func(i int) uint32 { return binary.NativeEndian.Uint32(buf[4*i:]) }
		end := min(head+int(number(3)), len(buf))
		name, _, _ := bytes.Cut(buf[head:end], []byte{0})
		events = append(events, Event{watch: int32(number(0)), Mask: number(1), Cookie: number(2), Name: string(name)})
		buf = buf[end:]
	}
	return events
}
