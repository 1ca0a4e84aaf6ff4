package inotify

import "golang.org/x/sys/unix"

// Masks for Aim.
const (
	// Entries is for a manifest directory. CLOSE_WRITE lets a written file be read as soon as it is complete, and not
	// in the middle of the writing.
	Entries = unix.IN_CLOSE_WRITE | unix.IN_MODIFY | unix.IN_CREATE | unix.IN_ATTRIB | unix.IN_MOVED_TO |
		unix.IN_MOVED_FROM | unix.IN_DELETE | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR
	// Arrival is for the directory above one that does not exist yet.
	Arrival = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR
	// Lost are events after which a watch reports nothing more of its path.
	Lost = unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_UNMOUNT | unix.IN_IGNORED | unix.IN_Q_OVERFLOW
)

// Watcher owns an instance and the goroutine that reads it.
type Watcher struct {
	*Instance
	aimed  Watch
	events chan []Event  // batches as the kernel gives them
	done   chan struct{} // closed to end the goroutine
	ended  chan struct{} // closed when the goroutine has ended
}

// Start opens an instance that watches nothing yet, and reads it until Close.
func Start() (*Watcher, error) {
	i, err := Open()
	if err != nil {
		return nil, err
	}
	n := &Watcher{Instance: i, aimed: -1, events: make(chan []Event), done: make(chan struct{}),
		ended: make(chan struct{})}
	go n.run()
	return n, nil
}

// Aim watches path instead of the path of the call before.
func (n *Watcher) Aim(path string, mask uint32) (err error) {
	if n.aimed >= 0 {
		n.Remove(n.aimed)
	}
	n.aimed, err = n.Add(path, mask)
	return err
}

// Current reports whether an event belongs to the path of the last Aim, and not to an earlier one.
func (n *Watcher) Current(e Event) bool { return e.Watch == n.aimed || e.Overflowed() }

// Events returns the channel of the events. It is never closed.
func (n *Watcher) Events() <-chan []Event { return n.events }

// Close ends all watches, and returns when the goroutine has ended.
func (n *Watcher) Close() {
	close(n.done)
	_ = n.Instance.Close() // ends the read; there is nothing to lose
	<-n.ended
}

func (n *Watcher) run() {
	defer close(n.ended)
	buf := make([]byte, 64<<10)
	for {
		events, err := n.Read(buf)
		if err != nil {
			return
		}
		select {
		case n.events <- events:
		case <-n.done:
			return
		}
	}
}
