package podlog

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/inotify"
	"github.com/berth-run/berth/internal/base/wake"
)

// watcher notes what happens to the files of a log. It wakes the reader of the log and keeps only what the reader
// has to know, so that events never pile up.
type watcher struct {
	kernel *inotify.Instance
	wake   wake.Signal
	done   chan struct{} // closed when the goroutine has ended

	mu     sync.Mutex
	names  bool                   // a name came into the directory since takeNames
	closed map[inotify.Watch]bool // watches of files whose writer has closed them
	err    error                  // the reason why the watch has ended, or nil
}

// watch watches a directory until close.
func watch(dir string) (*watcher, error) {
	kernel, err := inotify.Open()
	if err != nil {
		return nil, fmt.Errorf("watch log directory: %w", err)
	}
	w := &watcher{
		kernel: kernel,
		wake:   wake.New(),
		done:   make(chan struct{}),
		names:  true, // the reader has not seen the names that are there already
		closed: map[inotify.Watch]bool{},
	}
	if _, err := kernel.Add(dir, unix.IN_CREATE|unix.IN_MOVED_TO|unix.IN_ONLYDIR); err != nil {
		return nil, errors.Join(fmt.Errorf("watch log directory: %w", err), kernel.Close())
	}
	go w.run()
	return w, nil
}

// add watches a file, whatever its name is by now.
func (w *watcher) add(f *os.File) (inotify.Watch, error) {
	n, err := w.kernel.AddFile(f, unix.IN_MODIFY|unix.IN_CLOSE_WRITE)
	if err != nil {
		return -1, fmt.Errorf("watch log %s: %w", f.Name(), err)
	}
	return n, nil
}

// remove ends the watch of a file. It is harmless if the watch ended with the file.
func (w *watcher) remove(wd inotify.Watch) {
	w.kernel.Remove(wd)
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
func (w *watcher) isClosed(wd inotify.Watch) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed[wd]
}

func (w *watcher) close() error {
	err := w.kernel.Close()
	<-w.done
	return err
}

// run notes events until close.
func (w *watcher) run() {
	defer close(w.done)
	buf := make([]byte, 4096)
	for {
		events, err := w.kernel.Read(buf)
		w.note(events, err)
		w.wake.Wake()
		if err != nil {
			return
		}
	}
}

func (w *watcher) note(events []inotify.Event, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
	for _, e := range events {
		switch {
		case e.Mask&unix.IN_CLOSE_WRITE != 0:
			w.closed[e.Watch] = true
		case e.Mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0, e.Overflowed():
			w.names = true
		}
	}
}

// failed returns the error that ended the watch. It is nil while events arrive.
func (w *watcher) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}
