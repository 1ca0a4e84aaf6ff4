package logrotate

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/inotify"
	"github.com/berth-run/berth/internal/base/retry"
	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/model/pod"
)

// Delays between attempts after a failure.
const (
	retryFirst = 100 * time.Millisecond
	retryMax   = 30 * time.Second
)

// earlyKept is how long the loop remembers an event of a watch that no log has. A check that takes longer schedules
// another one, as if its log had been written to.
const earlyKept = time.Minute

// result is the outcome of a task on a log.
type result struct {
	log   *log
	began time.Time
	// packed: the task was a compression.
	packed bool
	// watched: the task has begun the watch wd. unwatchable: that failed, and the log exists.
	watched, unwatchable bool
	wd                   inotify.Watch
	// elsewhere: the log is no regular file. This runtime logs elsewhere and rotates there.
	elsewhere bool
	// sized: size is the size of the log. rotated: its files were checked, and the log was rotated if it was due.
	sized, rotated bool
	size           int64
	inode          uint64
	// compress lists the files to compress next.
	compress []string
	reopen   bool // see log
	err      error
}

// Run rotates logs until ctx ends.
func (r *Rotator) Run(ctx context.Context) error {
	if r.opts.Limits.MaxSize < 0 {
		<-ctx.Done()
		return ctx.Err()
	}
	var err error
	if r.watch, err = newWatcher(); err != nil {
		r.opts.Log.Warn("cannot watch container logs, checking the size of all logs every second", "err", err)
	} else {
		defer r.watch.Close()
	}
	defer r.tasks.Wait() // before Close: tasks use the watcher
	observed := r.opts.Observed.Watch()
	defer observed.Stop()
	alarm := wake.NewAlarm()
	defer alarm.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-observed.C():
			r.observe(observed.Changes())
		case events := <-r.watch.events():
			r.handleWrites(events)
		case res := <-r.done:
			r.finish(ctx, res)
		case <-alarm.C():
		}
		next := r.checkDue(ctx)
		alarm.Set(next, r.opts.Now())
	}
}

// observe updates the set of logs from the observed containers.
func (r *Rotator) observe(changes []store.Change[types.UID, *pod.Observed]) {
	for _, c := range changes {
		var paths []string
		if !c.Deleted {
			// Newest first. If two containers have the same path, the file of the older one no longer exists.
			for _, s := range c.Value.Containers {
				if s.LogPath != "" && s.State != pod.StateCreated && !slices.Contains(paths, s.LogPath) {
					paths = append(paths, s.LogPath)
					r.update(s)
				}
			}
		}
		for _, path := range r.byPod[c.Key] {
			if !slices.Contains(paths, path) {
				r.forget(r.logs[path])
			}
		}
		if r.byPod[c.Key] = paths; len(paths) == 0 {
			delete(r.byPod, c.Key)
		}
	}
}

func (r *Rotator) update(s pod.ContainerStatus) {
	l := r.logs[s.LogPath]
	if l == nil {
		l = &log{path: s.LogPath, due: r.opts.Now(), checkRotated: true}
		r.logs[s.LogPath] = l
	}
	running := s.State == pod.StateRunning
	if l.id != s.ID || l.running != running {
		l.due = r.opts.Now()
	}
	l.id, l.running = s.ID, running
}

func (r *Rotator) forget(l *log) {
	r.unwatch(l)
	l.gone = true
	delete(r.logs, l.path)
}

func (r *Rotator) unwatch(l *log) {
	if l.watched {
		r.watch.Remove(l.wd)
		delete(r.byWatch, l.wd)
		l.watched = false
	}
}

// handleWrites notes the first write to each log since its last check, and schedules the next check.
func (r *Rotator) handleWrites(events []inotify.Event) {
	now := r.opts.Now()
	maps.DeleteFunc(r.early, func(_ inotify.Watch, at time.Time) bool { return now.Sub(at) > earlyKept })
	for _, e := range events {
		l := r.byWatch[e.Watch]
		if l == nil {
			if r.checking > 0 && e.Mask&unix.IN_IGNORED == 0 {
				r.early[e.Watch] = now
			}
			continue
		}
		delete(r.byWatch, e.Watch)
		l.watched = false
		l.again(now, now, r.opts.Limits.MaxSize)
	}
}

// checkDue checks the logs that are due. It returns when the next one is due.
func (r *Rotator) checkDue(ctx context.Context) time.Time {
	now := r.opts.Now()
	var next time.Time
	for _, l := range r.logs {
		if !l.rotating && !l.due.IsZero() && !l.due.After(now) {
			l.due = time.Time{}
			r.check(ctx, l)
		}
		if !l.rotating && !l.due.IsZero() && (next.IsZero() || l.due.Before(next)) {
			next = l.due
		}
	}
	return next
}

// check starts a task that watches a log, reads its size, and rotates it if it has reached the limit. None of this
// happens in the loop: a log may be on a file system that does not answer, and other logs must not wait for it.
func (r *Rotator) check(ctx context.Context, l *log) {
	if !l.running {
		r.unwatch(l)
	}
	job := job{r: r, path: l.path, id: l.id, running: l.running, reopen: l.reopen, packing: l.packing,
		watched: l.watched, inode: l.inode, failures: l.failures, all: l.checkRotated}
	l.rotating, l.checkRotated = true, false
	r.checking++
	began := r.opts.Now()
	r.tasks.Go(func() {
		res := job.do(ctx)
		res.log, res.began = l, began
		r.report(ctx, res)
	})
}

// arm notes the watch that a check has begun. If the log was written to since then, or may have been, arm schedules the
// next check instead, because the watch has ended.
func (r *Rotator) arm(l *log, res result, now time.Time) {
	first, written := r.early[res.wd]
	if now.Sub(res.began) > earlyKept {
		first, written = res.began, true
	}
	delete(r.early, res.wd)
	switch {
	case !res.watched && !res.unwatchable:
	case l.gone || !l.running:
		if res.watched {
			r.watch.Remove(res.wd)
		}
	case res.unwatchable:
		l.again(now, now, r.opts.Limits.MaxSize)
	case written:
		l.again(first, now, r.opts.Limits.MaxSize)
	default:
		l.watched, l.wd = true, res.wd
		r.byWatch[res.wd] = l
	}
}

// again schedules the next check of a log that was written to.
func (l *log) again(written, now time.Time, limit int64) {
	l.firstWrite = written
	if l.due.IsZero() {
		l.due = now.Add(checkDelay(l.size, limit, l.rate))
	}
}

// measure records the size of a log and its growth rate.
func (l *log) measure(size int64, now time.Time) {
	if busy := now.Sub(l.firstWrite); !l.firstWrite.IsZero() && busy > 0 && size >= l.size {
		l.rate = float64(size-l.size) / busy.Seconds()
	}
	l.size, l.firstWrite = size, time.Time{}
}

// later schedules another check after a failure and returns the delay.
func (l *log) later(now time.Time, failures *int) time.Duration {
	*failures++
	delay := retry.Delay(retryFirst, retryMax, *failures)
	l.due, l.checkRotated = now.Add(delay), true
	return delay
}

func (r *Rotator) report(ctx context.Context, res result) {
	select {
	case r.done <- res:
	case <-ctx.Done():
	}
}

// finish handles the outcome of a task.
func (r *Rotator) finish(ctx context.Context, res result) {
	l, now := res.log, r.opts.Now()
	if res.packed {
		l.packing = false
	} else {
		l.rotating = false
		if res.rotated {
			l.reopen = res.reopen
		}
		r.checking--
		if res.sized {
			l.measure(res.size, now)
			l.inode = res.inode
		}
		r.arm(l, res, now)
	}
	switch {
	case l.gone:
	case res.elsewhere:
		r.unwatch(l)
		l.due = time.Time{}
	case res.err != nil:
		r.failed(l, res, now)
	case res.packed:
		l.packFailures = 0
		if l.repack {
			l.due, l.checkRotated = now, true
		}
	case res.rotated:
		r.unwatch(l) // it may watch the renamed file
		l.size, l.failures = 0, 0
		if l.running {
			l.due = now
		}
		r.compress(ctx, l, res.compress)
	}
}

func (r *Rotator) failed(l *log, res result, now time.Time) {
	failures, level := &l.failures, slog.LevelWarn
	if res.packed {
		failures = &l.packFailures
	}
	if errors.Is(res.err, fs.ErrNotExist) || errors.Is(res.err, errWritten) {
		level = slog.LevelDebug // it does not exist, or is still open for writing
	}
	delay := l.later(now, failures)
	r.opts.Log.Log(context.Background(), level, "cannot rotate a log, retrying", "path", l.path, "err", res.err,
		"delay", delay)
}

// compress starts to compress files of a log. If a compression is running, it notes that there are more files.
func (r *Rotator) compress(ctx context.Context, l *log, paths []string) {
	if l.repack = len(paths) > 0 && l.packing; l.repack || len(paths) == 0 {
		return
	}
	l.packing = true
	r.tasks.Go(func() { r.report(ctx, result{log: l, packed: true, err: r.pack(ctx, paths)}) })
}
