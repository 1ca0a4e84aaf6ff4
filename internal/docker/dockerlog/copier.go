package dockerlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/inotify"
)

// Limits of Docker's files of a container. Docker begins another file before a line that would exceed MaxSize bytes,
// and keeps MaxFiles files. A Copier that is (MaxFiles-1) * MaxSize bytes behind loses nothing.
const (
	MaxSize  = 16 << 20
	MaxFiles = 3
)

// Driver is the log driver of containers whose output a Copier can copy.
const Driver = "json-file"

// Options returns the options of the driver. Docker must not compress its files.
func Options() map[string]string {
	return map[string]string{
		"max-size": strconv.Itoa(MaxSize), "max-file": strconv.Itoa(MaxFiles), "compress": "false",
	}
}

// File returns the path of Docker's current file of a container's output. root is Docker's data root (DockerRootDir).
// Docker itself does not report the path before the container's first start.
func File(root, id string) string {
	return filepath.Join(root, "containers", id, id+"-json.log")
}

// Container is a container whose output is copied.
type Container struct {
	ID string
	// File is Docker's current file of its output.
	File string
	// Log is the path of its log.
	Log string
}

// Copier copies the output of containers to their logs, while it runs.
type Copier struct {
	log *slog.Logger

	mu      sync.Mutex
	tails   map[string]*tail
	watches map[inotify.Watch]*tail
	start   func(*tail) // nil unless the Copier runs
}

// New makes a Copier without containers.
func New(log *slog.Logger) *Copier {
	return &Copier{log: log, tails: map[string]*tail{}, watches: map[inotify.Watch]*tail{}}
}

// Run copies until ctx ends. It returns when all of its goroutines have ended.
func (c *Copier) Run(ctx context.Context) error {
	var group sync.WaitGroup
	watcher, err := inotify.Start()
	if err != nil {
		return fmt.Errorf("follow Docker's logs: %w", err)
	}
	defer watcher.Close()
	c.mu.Lock()
	c.start = func(t *tail) {
		ctx, cancel := context.WithCancel(ctx)
		t.cancel = cancel
		period := c.watch(watcher, t)
		group.Go(func() {
			defer cancel()
			t.run(ctx, period)
		})
	}
	for _, t := range c.tails {
		c.start(t)
	}
	c.mu.Unlock()
	defer group.Wait()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.start = nil
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case events := <-watcher.Events():
			c.note(events)
		}
	}
}

// watch lets the kernel report changes of a container's files. It returns the period of reading the files without a
// report: 0 for never, or a second if the kernel has no free watch.
func (c *Copier) watch(watcher *inotify.Watcher, t *tail) (period time.Duration) {
	w, err := watcher.Add(filepath.Dir(t.File), unix.IN_MODIFY|unix.IN_CREATE|unix.IN_MOVED_TO|unix.IN_ONLYDIR)
	if err != nil {
		c.log.Warn("cannot watch Docker's log of a container, reading it every second", "container", t.ID, "err", err)
		return time.Second
	}
	t.unwatch = func() {
		watcher.Remove(w)
		delete(c.watches, w)
	}
	c.watches[w] = t
	return 0
}

// note wakes the tails of files that have changed.
func (c *Copier) note(events []inotify.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range events {
		if e.Overflowed() {
			for _, t := range c.tails {
				t.changed.Wake()
			}
			continue
		}
		if t := c.watches[e.Watch]; t != nil && strings.HasPrefix(e.Name, filepath.Base(t.File)) {
			t.changed.Wake()
		}
	}
}

// Add begins to copy the output of a container, from where its log ends. It does nothing for a container that was added
// before, or that has no log. Call Add before the container starts: then no output can be lost.
func (c *Copier) Add(container Container) {
	if container.Log == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tails[container.ID] != nil {
		return
	}
	t := newTail(container, c.log)
	c.tails[container.ID] = t
	if c.start != nil {
		c.start(t)
	}
}

// Remove ends the copying for a container. It does not wait. Do not add the container again.
func (c *Copier) Remove(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.tails[id]
	delete(c.tails, id)
	if t == nil || t.cancel == nil {
		return
	}
	t.cancel()
	if t.unwatch != nil {
		t.unwatch()
	}
}

// errEnded is the error of a tail that has ended or never ran.
var errEnded = errors.New("its log is not being copied")

// Drain waits until everything that Docker has written of a container's output is in the container's log. It returns
// nil for a container that was not added, and an error if the log cannot be written or ctx ends before.
func (c *Copier) Drain(ctx context.Context, id string) error {
	t := c.tail(id)
	if t == nil {
		return nil
	}
	if err := t.drain(ctx); err != nil {
		return fmt.Errorf("complete log of container %s: %w", id, err)
	}
	return nil
}

// Reopen continues the log of a container in a new file at its path, after another process has renamed the old file. No
// line is lost or written twice.
func (c *Copier) Reopen(id string) error {
	t := c.tail(id)
	if t == nil {
		return fmt.Errorf("reopen log of container %s: %w", id, errEnded)
	}
	if err := t.target.reopen(); err != nil {
		return fmt.Errorf("reopen log of container %s: %w", id, err)
	}
	return nil
}

func (c *Copier) tail(id string) *tail {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tails[id]
}
