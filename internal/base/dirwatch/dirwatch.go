package dirwatch

import (
	"log/slog"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Anything is the name in a change that may concern every directory: events were lost, or the kernel reports none.
const Anything = ""

// Watcher watches directories. Its methods may be called from any goroutine.
type Watcher struct {
	changes chan string
	period  time.Duration
	log     *slog.Logger
	open    func() (*fsnotify.Watcher, error)

	end  chan struct{}
	done sync.WaitGroup

	mu     sync.Mutex
	dirs   map[string]bool
	kernel *fsnotify.Watcher // nil while the kernel has no instance left
}

// Start makes a watcher without directories. While the kernel has no inotify instance left, the watcher reports
// Anything every period, and asks for an instance again each time. Close ends it.
func Start(period time.Duration, log *slog.Logger) *Watcher {
	return start(period, log, fsnotify.NewWatcher)
}

func start(period time.Duration, log *slog.Logger, open func() (*fsnotify.Watcher, error)) *Watcher {
	w := &Watcher{changes: make(chan string), period: period, log: log, open: open, end: make(chan struct{}),
		dirs: map[string]bool{}}
	if err := w.connect(); err != nil {
		log.Warn("cannot watch directories, reading them again every period", "err", err, "period", period,
			"next", "raise the sysctl fs.inotify.max_user_instances")
	}
	w.done.Go(w.run)
	return w
}

// Changes returns the channel of changes: the path of the file that changed, or Anything. The channel is unbuffered:
// while its reader is busy, changes wait, and their files may have changed again since.
func (w *Watcher) Changes() <-chan string { return w.changes }

// Add watches a directory. Adding it again after it was removed and made again is harmless and necessary. The error is
// of the directory, such as fs.ErrNotExist, or says that no watch is free.
func (w *Watcher) Add(dir string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dirs[dir] = true
	if w.kernel == nil {
		return nil
	}
	return w.kernel.Add(dir)
}

// Close ends the watcher.
func (w *Watcher) Close() {
	close(w.end)
	w.done.Wait()
}

// connect asks the kernel for an instance, and watches all directories with it.
func (w *Watcher) connect() error {
	kernel, err := w.open()
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kernel = kernel
	for dir := range w.dirs {
		if err := kernel.Add(dir); err != nil { // its user gets the error from the next Add
			w.log.Debug("cannot watch a directory", "dir", dir, "err", err)
		}
	}
	return nil
}

func (w *Watcher) run() {
	ticks := time.NewTicker(w.period)
	defer ticks.Stop()
	for w.kernel == nil {
		select {
		case <-w.end:
			return
		case <-ticks.C:
		}
		if err := w.connect(); err == nil {
			w.log.Info("watching directories again")
		}
		if !w.report(Anything) {
			return
		}
	}
	ticks.Stop()
	defer func() { _ = w.kernel.Close() }()
	for {
		change := Anything
		select {
		case <-w.end:
			return
		case event := <-w.kernel.Events:
			change = event.Name
		case err := <-w.kernel.Errors:
			w.log.Debug("events of directories were lost", "err", err)
		}
		if !w.report(change) {
			return
		}
	}
}

// report passes a change on. It returns false when the watcher was closed.
func (w *Watcher) report(change string) bool {
	select {
	case w.changes <- change:
		return true
	case <-w.end:
		return false
	}
}
