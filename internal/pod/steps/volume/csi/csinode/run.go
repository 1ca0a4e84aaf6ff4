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

// refusedDriver is the reason of the event for a driver that pods on this node use although the API server rejects it.
const refusedDriver = "FailedRegisterCSIDriver"

// firstAnswer bounds how long the registration of a driver waits for the first answer of the API server. The node uses
// the driver meanwhile.
const firstAnswer = 5 * time.Second

// Update is a change of one driver that the API server has not accepted yet.
type Update struct {
	info *Info // nil: the driver has gone
	// first receives the result of the first try.
	first chan error
	// refusal is the rejection that was reported last. Only the loop in Run uses it.
	refusal string
}

func newUpdate(i *Info) *Update { return &Update{info: i, first: make(chan error, 1)} }

// Publish sets a driver in CSINode, or removes it if i is nil. It returns at once. The loop in Run retries until the
// API server has accepted the update or a newer one replaces it.
func (w *Writer) Publish(driver string, i *Info) *Update {
	if w == nil {
		u := newUpdate(i)
		u.first <- nil
		return u
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drivers[driver] = i
	if i == nil {
		delete(w.drivers, driver)
	}
	return w.queue(driver, i)
}

// queue needs the lock.
func (w *Writer) queue(driver string, i *Info) *Update {
	u := newUpdate(i)
	w.pending[driver] = u
	w.queued.Wake()
	return u
}

// queueAll queues every registered driver again.
func (w *Writer) queueAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for driver, i := range w.drivers {
		w.queue(driver, i)
	}
}

// Accepted waits up to 5 s for the first answer of the API server. It returns an error only if the API server rejects
// the driver, or if the context ends. If the API server is unreachable, it returns nil: the loop in Run retries.
func (u *Update) Accepted(ctx context.Context) error {
	timer := time.NewTimer(firstAnswer)
	defer timer.Stop()
	select {
	case err := <-u.first:
		if refused(err) {
			return err
		}
		return nil
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Run writes pending updates until ctx ends. It writes one after the other, because all drivers share the Node's
// annotation.
func (w *Writer) Run(ctx context.Context) error {
	if w == nil {
		return nil
	}
	for failures := 0; ; {
		var again <-chan time.Time
		if w.writePending(ctx) {
			failures = 0
		} else {
			failures++
			again = time.After(retryDelay(failures, rand.Float64()))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.queued.C():
		case <-again:
		}
	}
}

// writePending tries every pending update once. It reports whether all succeeded.
func (w *Writer) writePending(ctx context.Context) (done bool) {
	w.mu.Lock()
	pending := maps.Clone(w.pending)
	w.mu.Unlock()
	done = true
	for _, name := range slices.Sorted(maps.Keys(pending)) {
		u := pending[name]
		err := w.writeDriver(ctx, name, u.info)
		if ctx.Err() != nil {
			return false
		}
		select {
		case u.first <- err:
		default:
			w.report(name, u, err)
		}
		if err != nil {
			done = false
			continue
		}
		w.mu.Lock()
		if w.pending[name] == u {
			delete(w.pending, name)
		}
		w.mu.Unlock()
	}
	return done
}

// report logs the result of a write that no registration waits for. A rejection is an event of the Node too.
func (w *Writer) report(name string, u *Update, err error) {
	switch {
	case err == nil:
		w.o.Log.Info("CSI driver published in CSINode", "driver", name, "registered", u.info != nil)
	case refused(err) && u.refusal != err.Error():
		u.refusal = err.Error()
		w.o.Log.Error("API server rejects CSI driver, retrying", "driver", name, "err", err)
		w.o.Events.Event(event.NodeRef(w.o.Node), corev1.EventTypeWarning, refusedDriver, "CSI driver %s: %v", name,
			err)
	default:
		w.o.Log.Debug("cannot publish CSI driver in CSINode, retrying", "driver", name, "err", err)
	}
}
