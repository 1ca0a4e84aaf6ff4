package drift

import (
	"cmp"
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// gather is how long writes are collected before they are looked at, settle
	// how long what was found has to last. With answerTime twice they are less than a second.
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

// ended is a look that has ended.
type ended struct {
	key     string
	subject *subject
	again   bool
}

// loop has each subject looked at on its own: one whose runtime hangs keeps no other waiting.
func (w *Watch) loop(ctx context.Context) error {
	next := time.NewTimer(0)
	defer next.Stop()
	audit := time.NewTimer(w.period())
	defer audit.Stop()
	looks := make(chan ended)
	var running sync.WaitGroup
	defer running.Wait()
	begin := func(taken map[string]*subject) {
		for key, s := range taken {
			running.Go(func() {
				e := ended{key, s, w.look(ctx, key, s)}
				select {
				case looks <- e:
				case <-ctx.Done():
				}
			})
		}
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.wake:
		case <-next.C:
			begin(w.take(time.Now(), false))
		case <-audit.C:
			begin(w.take(time.Now(), true))
			audit.Reset(w.period())
		case e := <-looks:
			w.looked(e)
		}
		if at, ok := w.due(); ok {
			next.Reset(time.Until(at))
		} else {
			next.Stop()
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
