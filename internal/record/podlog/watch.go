package podlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// watcher tells what happens to the files of a log, by inotify.
type watcher struct {
	fd   int
	file *os.File // of fd
	wake chan struct{}
	done chan struct{} // the goroutine has ended

	mu     sync.Mutex
	names  bool           // a name came into the directory since takeNames
	closed map[int32]bool // watches of files whose writer has closed them
	err    error          // nothing more is seen
}

// watch begins to watch a directory; close ends it.
func watch(dir string) (*watcher, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if errors.Is(err, unix.EMFILE) {
		return nil,
			fmt.Errorf("watch log directory: %w: too many followers, raise the sysctl fs.inotify.max_user_instances",
				err)
	}
	if err != nil {
		return nil, fmt.Errorf("watch log directory: %w", err)
	}
	w := &watcher{
		fd:     fd,
		file:   os.NewFile(uintptr(fd), "inotify"),
		wake:   make(chan struct{}, 1),
		done:   make(chan struct{}),
		names:  true, // whatever came before is new to the reader
		closed: map[int32]bool{},
	}
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_CREATE|unix.IN_MOVED_TO|unix.IN_ONLYDIR); err != nil {
		return nil, errors.Join(fmt.Errorf("watch log directory %s: %w", dir, err), w.file.Close())
	}
	go w.run()
	return w, nil
}

// add watches a file, whatever its name is by now.
func (w *watcher) add(f *os.File) (wd int32, err error) {
	n, err := unix.InotifyAddWatch(w.fd, fmt.Sprintf("/proc/self/fd/%d", f.Fd()), unix.IN_MODIFY|unix.IN_CLOSE_WRITE)
	if err != nil {
		return 0, fmt.Errorf("watch log %s: %w", f.Name(), err)
	}
	return int32(n), nil
}

// remove ends the watch of a file. It may have ended with the file.
func (w *watcher) remove(wd int32) {
	_, _ = unix.InotifyRmWatch(w.fd, uint32(wd))
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.closed, wd)
}

// takeNames says whether a name came into the directory since the last call.
func (w *watcher) takeNames() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	names := w.names
	w.names = false
	return names
}

// putNames makes the next takeNames return true.
func (w *watcher) putNames() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.names = true
}

// isClosed says whether the last writer of a file has closed it since add.
func (w *watcher) isClosed(wd int32) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed[wd]
}

func (w *watcher) close() error {
	err := w.file.Close()
	<-w.done
	return err
}

// run takes events until the file is closed. That something happened is all that
// a reader needs to know, so that events never pile up.
func (w *watcher) run() {
	defer close(w.done)
	buf := make([]byte, 4096)
	for {
		n, err := w.file.Read(buf)
		w.mu.Lock()
		w.take(buf[:max(n, 0)])
		w.err = err
		w.mu.Unlock()
		select {
		case w.wake <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

// take notes what a buffer of events says (inotify(7), struct inotify_event).
func (w *watcher) take(events []byte) {
	for len(events) >= unix.SizeofInotifyEvent {
		wd := int32(binary.NativeEndian.Uint32(events))
		mask := binary.NativeEndian.Uint32(events[4:])
		name := binary.NativeEndian.Uint32(events[12:])
		switch {
		case mask&unix.IN_CLOSE_WRITE != 0:
			w.closed[wd] = true
		case mask&(unix.IN_CREATE|unix.IN_MOVED_TO|unix.IN_Q_OVERFLOW) != 0:
			w.names = true
		}
		events = events[min(len(events), unix.SizeofInotifyEvent+int(name)):]
	}
}

// failed returns why nothing more is seen.
func (w *watcher) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}
