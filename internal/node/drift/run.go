package drift

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
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
	// auditPeriod is the default of Options.Audit. eagerAudit is for subjects that inotify does not cover.
	auditPeriod = 5 * time.Minute
	eagerAudit  = time.Second
	// machinePeriod is the time between looks at the machine's CPUs and memory nodes, and at the highest cgroups.
	machinePeriod = 30 * time.Second
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
	machine := w.machine()
	tick := time.NewTimer(w.period())
	defer tick.Stop()
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
			begin(w.startChecks(time.Now(), nothing))
		case now := <-tick.C:
			w.audit(now)
			begin(w.startChecks(now, w.scope(&machine)))
			tick.Reset(w.period())
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

// period returns the time between two ticks of the loop.
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
	return min(cmp.Or(w.opts.Audit, auditPeriod), machinePeriod)
}

// audit makes those subjects due whose last check is the longest ago: at each tick so many that all have their turn in
// Options.Audit. All at once would allocate so much that the agent collects garbage.
func (w *Watch) audit(now time.Time) {
	tick, all := w.period(), cmp.Or(w.opts.Audit, auditPeriod)
	w.mu.Lock()
	defer w.mu.Unlock()
	var keys []string
	for key, s := range w.subjects {
		if s.held == 0 && !s.checking {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b string) int { return w.subjects[a].checked.Compare(w.subjects[b].checked) })
	share := int((time.Duration(len(w.subjects))*tick + all - 1) / all)
	for _, key := range keys[:min(share, len(keys))] {
		if _, dirty := w.dirty[key]; !dirty {
			w.dirty[key] = now
		}
	}
}

// scope says which subjects are checked that are not due.
type scope int

const (
	nothing   scope = iota
	uncovered       // the cgroups of which inotify does not report all: see covered
	everything
)

// scope returns what to check now besides the subjects that are due. last is what readMachine returned before. It is
// updated.
func (w *Watch) scope(last *string) scope {
	before := *last
	*last = w.machine()
	w.mu.Lock()
	defer w.mu.Unlock()
	if *last != before || w.kernel == nil {
		return everything
	}
	return uncovered
}

// readMachine returns the machine's CPUs and memory nodes. When they change, the kernel changes cpusets by itself
// (Documentation/admin-guide/cgroup-v1/cpusets.rst).
func readMachine() string {
	var all []byte
	for _, file := range []string{"cpu/online", "node/has_memory"} {
		text, err := os.ReadFile(filepath.Join("/sys/devices/system", file))
		if err == nil { // a kernel without NUMA has no nodes
			all = append(all, text...)
		}
	}
	return string(all)
}
