package csi

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/event"
)

// refusedDriver is the reason of the event that the cluster does not take a driver
// that this node uses.
const refusedDriver = "FailedRegisterCSIDriver"

// firstAnswer is for how long a driver, which is in use already, waits to be told that
// it has registered: the cluster may refuse it.
const firstAnswer = 5 * time.Second

// news is what the cluster is to be told of a driver.
type news struct {
	info *info // nil: it is gone
	// first has what came of the first try.
	first chan error
	// refusal is the one that was told last. The loop's own.
	refusal string
}

// tell has the cluster told of a driver, and tried again until it is or there is
// other news of the driver.
func (k *registry) tell(name string, i *info) *news {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.note(name, i)
}

// note is tell for those who hold the lock.
func (k *registry) note(name string, i *info) *news {
	n := &news{info: i, first: make(chan error, 1)}
	if k.o.Client == nil {
		n.first <- nil
		return n
	}
	k.untold[name] = n
	select {
	case k.noted <- struct{}{}:
	default:
	}
	return n
}

// noteAll has the cluster told of all drivers once more.
func (k *registry) noteAll() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, d := range k.drivers {
		k.note(name, d.info)
	}
}

// accepted waits for what the cluster makes of a driver. Only a refusal is an error:
// one that is away is told later.
func (n *news) accepted(ctx context.Context) error {
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

// tellCluster tells of drivers until ctx ends, of one after the other: they share the
// Node's annotation.
func (k *registry) tellCluster(ctx context.Context) {
	for failures := 0; ; {
		var again <-chan time.Time
		if k.tellAll(ctx) {
			failures = 0
		} else {
			failures++
			again = time.After(tellPause(failures, rand.Float64()))
		}
		select {
		case <-ctx.Done():
			return
		case <-k.noted:
		case <-again:
		}
	}
}

// tellAll tries once for each driver, and says whether all is told.
func (k *registry) tellAll(ctx context.Context) (done bool) {
	k.mu.Lock()
	untold := maps.Clone(k.untold)
	k.mu.Unlock()
	done = true
	for _, name := range slices.Sorted(maps.Keys(untold)) {
		n := untold[name]
		err := k.tellNode(ctx, name, n.info)
		if ctx.Err() != nil {
			return false
		}
		select {
		case n.first <- err:
		default:
			k.complain(name, n, err)
		}
		if err != nil {
			done = false
			continue
		}
		k.mu.Lock()
		if k.untold[name] == n {
			delete(k.untold, name)
		}
		k.mu.Unlock()
	}
	return done
}

// complain tells people what came of a try that no driver waits for.
func (k *registry) complain(name string, n *news, err error) {
	switch {
	case err == nil:
		k.o.Log.Info("the cluster is told of CSI driver", "driver", name, "registered", n.info != nil)
	case refuses(err) && n.refusal != err.Error():
		n.refusal = err.Error()
		k.o.Log.Error("the cluster refuses CSI driver", "driver", name, "err", err)
		k.o.Events.Event(event.NodeRef(k.o.Node), corev1.EventTypeWarning, refusedDriver, "CSI driver %s: %v", name, err)
	default:
		k.o.Log.Debug("tell the cluster of CSI driver", "driver", name, "err", err)
	}
}
