package csinode

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/record/event"
)

// refusedDriver is the reason of the event that the cluster does not take a driver
// that this node uses.
const refusedDriver = "FailedRegisterCSIDriver"

// firstAnswer is for how long a driver, which is in use already, waits to be told that
// it has registered: the cluster may refuse it.
const firstAnswer = 5 * time.Second

// News is what the cluster is to be told of a driver.
type News struct {
	info *Info // nil: it is gone
	// first has what came of the first try.
	first chan error
	// refusal is the one that was told last. The loop's own.
	refusal string
}

func newNews(i *Info) *News { return &News{info: i, first: make(chan error, 1)} }

// Tell has the cluster told of a driver, or that it is gone for nil, and tried again
// until it is or there is other news of it. It does not block.
func (w *Writer) Tell(driver string, i *Info) *News {
	if w == nil {
		n := newNews(i)
		n.first <- nil
		return n
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drivers[driver] = i
	if i == nil {
		delete(w.drivers, driver)
	}
	return w.note(driver, i)
}

func (w *Writer) note(driver string, i *Info) *News {
	n := newNews(i)
	w.untold[driver] = n
	select {
	case w.noted <- struct{}{}:
	default:
	}
	return n
}

// again has the cluster told of all drivers once more.
func (w *Writer) again() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for driver, i := range w.drivers {
		w.note(driver, i)
	}
}

// Accepted waits for what the cluster makes of a driver. Only a refusal is an error:
// one that is away is told later.
func (n *News) Accepted(ctx context.Context) error {
	timer := time.NewTimer(firstAnswer)
	defer timer.Stop()
	select {
	case err := <-n.first:
		if refuses(err) {
			return err
		}
		return nil
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Run tells of drivers until ctx ends, of one after the other: they share the Node's
// annotation.
func (w *Writer) Run(ctx context.Context) error {
	if w == nil {
		return nil
	}
	for failures := 0; ; {
		var again <-chan time.Time
		if w.tellAll(ctx) {
			failures = 0
		} else {
			failures++
			again = time.After(pause(failures, rand.Float64()))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.noted:
		case <-again:
		}
	}
}

// tellAll tries once for each driver, and says whether all is told.
func (w *Writer) tellAll(ctx context.Context) (done bool) {
	w.mu.Lock()
	untold := maps.Clone(w.untold)
	w.mu.Unlock()
	done = true
	for _, name := range slices.Sorted(maps.Keys(untold)) {
		n := untold[name]
		err := w.tellNode(ctx, name, n.info)
		if ctx.Err() != nil {
			return false
		}
		select {
		case n.first <- err:
		default:
			w.complain(name, n, err)
		}
		if err != nil {
			done = false
			continue
		}
		w.mu.Lock()
		if w.untold[name] == n {
			delete(w.untold, name)
		}
		w.mu.Unlock()
	}
	return done
}

// complain tells people what came of a try that no driver waits for.
func (w *Writer) complain(name string, n *News, err error) {
	switch {
	case err == nil:
		w.o.Log.Info("the cluster is told of CSI driver", "driver", name, "registered", n.info != nil)
	case refuses(err) && n.refusal != err.Error():
		n.refusal = err.Error()
		w.o.Log.Error("the cluster refuses CSI driver", "driver", name, "err", err)
		w.o.Events.Event(event.NodeRef(w.o.Node), corev1.EventTypeWarning, refusedDriver, "CSI driver %s: %v", name,
			err)
	default:
		w.o.Log.Debug("tell the cluster of CSI driver", "driver", name, "err", err)
	}
}
