package logrotate

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/inotify"
)

// watcher reports the first write to each watched file, and its rename. A nil watcher watches nothing.
type watcher struct{ *inotify.Watcher }

func newWatcher() (*watcher, error) {
	w, err := inotify.Start()
	if err != nil {
		return nil, fmt.Errorf("watch logs: %w", err)
	}
	return &watcher{w}, nil
}

func (w *watcher) events() <-chan []inotify.Event {
	if w == nil {
		return nil
	}
	return w.Events()
}

// add watches for the next write to a file or its next rename. The watch ends with that event. Each watch adds at most
// two events, so the kernel's queue (fs.inotify.max_queued_events, 16,384) has room for 8,192 logs.
func (w *watcher) add(path string) (inotify.Watch, error) {
	if w == nil {
		return -1, unix.ENOSYS
	}
	return w.Add(path, unix.IN_MODIFY|unix.IN_MOVE_SELF|unix.IN_ONESHOT)
}
