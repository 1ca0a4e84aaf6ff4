package logrotate

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/model/pod"

	"k8s.io/apimachinery/pkg/types"
)

// Between two tries of what failed.
const (
	retryFirst = 100 * time.Millisecond
	retryMax   = 30 * time.Second
)

// result is what became of a task on a log.
type result struct {
	log *log
	// packed: it was about the compression.
	packed bool
	// compress is what is to be compressed now.
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
	defer r.tasks.Wait()
	var err error
	if r.watch, err = newWatcher(); err != nil {
		r.opts.Log.Warn("logs of containers are looked at each second", "err", err)
	} else {
		defer r.watch.close()
	}
	observed := r.opts.Observed.Watch()
	defer observed.Stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-observed.C():
			r.observe(observed.Changes())
		case wds := <-r.watch.events():
			r.written(wds)
		case res := <-r.done:
			r.finish(ctx, res)
		case <-timer.C:
		}
		timer.Stop()
		if next := r.look(ctx); !next.IsZero() {
			timer.Reset(max(0, next.Sub(r.opts.Now())))
		}
	}
}

// observe takes over which containers there are and which of them run.
func (r *Rotator) observe(changes []store.Change[types.UID, *pod.Observed]) {
	for _, c := range changes {
		var paths []string
		if !c.Deleted {
			for _, s := range c.Value.Containers { // newest first: of two with one path the second is not there any more
				if s.LogPath != "" && s.State != pod.StateCreated && !slices.Contains(paths, s.LogPath) {
					paths = append(paths, s.LogPath)
					r.seen(s)
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

func (r *Rotator) seen(s pod.ContainerStatus) {
	l := r.logs[s.LogPath]
	if l == nil {
		l = &log{path: s.LogPath, due: r.opts.Now(), untidy: true}
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
		r.watch.remove(l.wd)
		delete(r.byWatch, l.wd)
		l.watched = false
	}
}

// written notes the first writes to logs since they were looked at.
func (r *Rotator) written(wds []int32) {
	now := r.opts.Now()
	for _, wd := range wds {
		l := r.byWatch[wd]
		if l == nil {
			continue
		}
		delete(r.byWatch, wd)
		l.watched, l.wrote = false, now
		if l.due.IsZero() {
			l.due = now.Add(lookAfter(l.size, r.opts.Limits.MaxSize, l.rate))
		}
	}
}

// look looks at the logs that are due and returns when to look again.
func (r *Rotator) look(ctx context.Context) time.Time {
	now := r.opts.Now()
	var next time.Time
	for _, l := range r.logs {
		if !l.rotating && !l.due.IsZero() && !l.due.After(now) {
			l.due = time.Time{}
			r.lookAt(ctx, l, now)
		}
		if !l.rotating && !l.due.IsZero() && (next.IsZero() || l.due.Before(next)) {
			next = l.due
		}
	}
	return next
}

// lookAt watches a log and begins its rotation if it is time for that. The watch
// comes first, so that no write falls between the two.
func (r *Rotator) lookAt(ctx context.Context, l *log, now time.Time) {
	switch {
	case !l.running:
		r.unwatch(l)
	case !l.watched:
		r.arm(l, now)
	}
	info, err := os.Lstat(l.path)
	switch {
	case err == nil && !info.Mode().IsRegular():
		r.unwatch(l) // a runtime that logs elsewhere, and rotates there
		l.due = time.Time{}
		return
	case err == nil:
		l.measure(info.Size(), now)
		if !l.untidy && !l.reopen && l.size < r.opts.Limits.MaxSize {
			return
		}
	case !errors.Is(err, fs.ErrNotExist):
		l.later(now, &l.retry)
		r.opts.Log.Warn("look at log", "path", l.path, "err", err)
		return
	case !l.running && !l.untidy:
		return
	}
	l.rotating, l.untidy = true, false
	job := job{r: r, path: l.path, id: l.id, running: l.running, reopen: l.reopen, packing: l.packing}
	r.tasks.Go(func() {
		res := job.rotate(ctx)
		res.log = l
		r.tell(ctx, res)
	})
}

// arm has the next write told. Without that the log is looked at periodically.
func (r *Rotator) arm(l *log, now time.Time) {
	wd, err := r.watch.add(l.path)
	switch {
	case err == nil:
		l.watched, l.wd = true, wd
		r.byWatch[wd] = l
	case !errors.Is(err, fs.ErrNotExist):
		l.wrote, l.due = now, now.Add(lookAfter(l.size, r.opts.Limits.MaxSize, l.rate))
	}
}

// measure notes the size of a log and how fast it grew.
func (l *log) measure(size int64, now time.Time) {
	if busy := now.Sub(l.wrote); !l.wrote.IsZero() && busy > 0 && size >= l.size {
		l.rate = float64(size-l.size) / busy.Seconds()
	}
	l.size, l.wrote = size, time.Time{}
}

// later has a log looked at again after a failure.
func (l *log) later(now time.Time, retry *time.Duration) {
	*retry = min(max(2**retry, retryFirst), retryMax)
	l.due, l.untidy = now.Add(*retry), true
}

func (r *Rotator) tell(ctx context.Context, res result) {
	select {
	case r.done <- res:
	case <-ctx.Done():
	}
}

// finish takes over what became of a task.
func (r *Rotator) finish(ctx context.Context, res result) {
	l, now := res.log, r.opts.Now()
	if res.packed {
		l.packing = false
	} else {
		l.rotating, l.reopen = false, res.reopen
	}
	switch {
	case l.gone:
	case res.err != nil:
		r.failed(l, res, now)
	case res.packed:
		l.packRetry = 0
		if l.repack {
			l.due, l.untidy = now, true
		}
	default:
		r.unwatch(l) // that may be the renamed file
		l.size, l.retry = 0, 0
		if l.running {
			l.due = now
		}
		r.compress(ctx, l, res.compress)
	}
}

func (r *Rotator) failed(l *log, res result, now time.Time) {
	retry, level := &l.retry, slog.LevelWarn
	if res.packed {
		retry = &l.packRetry
	}
	if errors.Is(res.err, fs.ErrNotExist) || errors.Is(res.err, errWritten) {
		level = slog.LevelDebug // not yet, or not any more
	}
	l.later(now, retry)
	r.opts.Log.Log(context.Background(), level, "rotate log", "path", l.path, "err", res.err, "again in", *retry)
}

// compress begins to compress files of a log, or notes that there are more to
// compress when those under way are done.
func (r *Rotator) compress(ctx context.Context, l *log, paths []string) {
	if l.repack = len(paths) > 0 && l.packing; l.repack || len(paths) == 0 {
		return
	}
	l.packing = true
	r.tasks.Go(func() { r.tell(ctx, result{log: l, packed: true, err: r.pack(ctx, paths)}) })
}
