package drift

import (
	"cmp"
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// gather is how long writes are collected before they are looked at, settle
	// how long what was found has to last.
	gather = 100 * time.Millisecond
	settle = 250 * time.Millisecond
	// auditPeriod is the time between readings of everything, see Options;
	// eagerAudit where the kernel does not tell of writes.
	auditPeriod = 30 * time.Second
	eagerAudit  = time.Second
	// patience is how long one subject may take, with all that is asked of the runtime.
	patience = 5 * time.Second
)

// Run looks after the subjects until ctx ends.
func (w *Watch) Run(ctx context.Context) error {
	kernel, err := openInotify()
	if err != nil {
		w.opts.Log.Warn("Changes of cgroups are noticed late", "err", err)
		return w.loop(ctx)
	}
	w.start(kernel)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		<-ctx.Done()
		w.stop()
		return kernel.file.Close()
	})
	group.Go(func() error {
		buf := make([]byte, 64<<10)
		for {
			all, err := kernel.read(buf)
			if errors.Is(err, os.ErrClosed) {
				return nil
			}
			if err != nil {
				return err
			}
			w.note(all)
		}
	})
	group.Go(func() error { return w.loop(ctx) })
	return group.Wait()
}

func (w *Watch) start(kernel *inotify) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kernel = kernel
	for key := range w.subjects {
		w.register(key)
		w.mark(key) // it may have changed before
	}
}

// stop forgets the kernel's watches, which end with the file.
func (w *Watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kernel = nil
	clear(w.keys)
	for _, s := range w.subjects {
		s.watches = nil
	}
}

func (w *Watch) loop(ctx context.Context) error {
	soon := time.NewTimer(0)
	soon.Stop()
	defer soon.Stop()
	audit := time.NewTimer(w.period())
	defer audit.Stop()
	gathering := false
	for {
		var keys []string
		select {
		case <-ctx.Done():
			return nil
		case <-w.wake:
			if !gathering {
				gathering = true
				soon.Reset(gather)
			}
			continue
		case <-soon.C:
			gathering = false
			keys = w.take(false)
		case <-audit.C:
			keys = w.take(true)
			audit.Reset(w.period())
		}
		var again []string
		for _, key := range keys {
			if ctx.Err() == nil && w.look(ctx, key) {
				again = append(again, key)
			}
		}
		if len(again) > 0 {
			w.remark(again)
			gathering = true
			soon.Reset(settle)
		}
	}
}

// remark has subjects looked at again, without a wake.
func (w *Watch) remark(keys []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range keys {
		if w.subjects[key] != nil {
			w.dirty[key] = true
		}
	}
}

// period is the time to the next audit.
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
