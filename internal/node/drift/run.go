package drift

import (
	"cmp"
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berth-run/berth/internal/base/inotify"
)

const (
	// Writes are collected for gather before a check. A finding must last for settle before its repair. With two times
	// fetchTimeout, this is less than a second.
	gather = 100 * time.Millisecond
	settle = 250 * time.Millisecond
	// auditPeriod is the default of Options.Audit. eagerAudit applies while inotify does not cover all subjects.
	auditPeriod = 30 * time.Second
	eagerAudit  = time.Second
	// checkTimeout limits the check of one subject, including its calls of the runtime.
	checkTimeout = 5 * time.Second
)

// Run checks and repairs the subjects until ctx ends.
func (w *Watch) Run(ctx context.Context) error {
	kernel, err := inotify.Open()
	if err != nil {
		w.opts.Log.Warn("cannot watch cgroups, checking all of them every second", "err", err)
		return w.loop(ctx)
	}
	w.start(kernel)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		<-ctx.Done()
		w.stop()
		return kernel.Close()
	})
	group.Go(func() error {
		buf := make([]byte, 64<<10)
		for {
			all, err := kernel.Read(buf)
			if errors.Is(err, os.ErrClosed) {
				return nil
			}
			if err != nil {
				return err
			}
			w.handle(all)
		}
	})
	group.Go(func() error { return w.loop(ctx) })
	return group.Wait()
}

func (w *Watch) start(kernel *inotify.Instance) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kernel = kernel
	for key := range w.subjects {
		w.register(key)
	}
}

// stop forgets the inotify watches, which end with the file.
func (w *Watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kernel = nil
	clear(w.keys)
	for _, s := range w.subjects {
		s.watches = nil
	}
}

// outcome is the result of one check.
type outcome struct {
	key     string
	subject *subject
	again   bool
}

// loop runs the check of each subject in its own goroutine, so that one whose runtime hangs delays no other.
func (w *Watch) loop(ctx context.Context) error {
	next := time.NewTimer(0)
	defer next.Stop()
	audit := time.NewTimer(w.period())
	defer audit.Stop()
	results := make(chan outcome)
	var running sync.WaitGroup
	defer running.Wait()
	begin := func(due map[string]*subject) {
		for key, s := range due {
			running.Go(func() {
				e := outcome{key, s, w.check(ctx, key, s)}
				select {
				case results <- e:
				case <-ctx.Done():
				}
			})
		}
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.wake.C():
		case <-next.C:
			begin(w.startChecks(time.Now(), false))
		case <-audit.C:
			begin(w.startChecks(time.Now(), true))
			audit.Reset(w.period())
		case e := <-results:
			w.finish(e)
		}
		if at, ok := w.due(); ok {
			next.Reset(time.Until(at))
		} else {
			next.Stop()
		}
	}
}

// period returns the time until the next audit.
func (w *Watch) period() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.kernel == nil {
		return eagerAudit
	}
	for _, s := range w.subjects {
		if s.unwatched {
			return eagerAudit
		}
	}
	return cmp.Or(w.opts.Audit, auditPeriod)
}
