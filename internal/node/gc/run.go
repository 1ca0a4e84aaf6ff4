package gc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/record/podlog"
)

// Between two tries of what failed.
const (
	retryFirst = time.Second
	retryMax   = time.Minute
)

// result is what became of the removals of a pod.
type result struct {
	uid    types.UID
	counts map[string]int // whose logs were looked at
	err    error
}

// Run removes garbage until ctx ends.
func (g *Collector) Run(ctx context.Context) error {
	defer g.wg.Wait()
	for _, synced := range g.opts.Synced {
		select {
		case <-synced:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := g.sweep(ctx); err != nil && ctx.Err() == nil {
		g.opts.Log.Warn("look for logs of earlier pods", "err", err)
	}
	observed := g.opts.Observed.Watch()
	defer observed.Stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-observed.C():
			for _, c := range observed.Changes() {
				g.due[c.Key] = time.Now()
			}
			g.count(time.Now())
		case <-g.again:
			for uid := range g.takeGone() {
				g.due[uid] = time.Now()
			}
		case r := <-g.done:
			g.finish(r)
		case <-timer.C:
		}
		timer.Stop()
		if next := g.look(ctx); !next.IsZero() {
			timer.Reset(time.Until(next))
		}
	}
}

// look begins what is due, one thing at a time for each pod, and returns when
// there is more.
func (g *Collector) look(ctx context.Context) (next time.Time) {
	for uid, at := range g.due {
		switch {
		case g.busy[uid]:
		case time.Until(at) <= 0:
			delete(g.due, uid)
			g.begin(ctx, uid)
		case next.IsZero() || at.Before(next):
			next = at
		}
	}
	return next
}

// count looks for dead containers that are too many for the node; their pods are due.
func (g *Collector) count(now time.Time) {
	if g.opts.Policy.Total < 0 {
		return
	}
	var live []*pod.Observed
	for uid, o := range g.opts.Observed.Snapshot().All() {
		if g.opts.Known(uid) {
			live = append(live, o)
		}
	}
	g.over = surplus(live, g.opts.Policy)
	for uid := range g.over {
		g.due[uid] = now
	}
}

// begin decides about one pod and removes what is to be removed, if anything is.
func (g *Collector) begin(ctx context.Context, uid types.UID) {
	o, _ := g.opts.Observed.Get(uid)
	gone := !g.opts.Known(uid)
	if o == nil && gone {
		delete(g.last, uid)
		delete(g.retry, uid)
	}
	counts := newest(o)
	w, next := decide(o, gone, g.opts.Policy, g.over[uid], time.Now())
	if !next.IsZero() {
		g.due[uid] = next
	}
	if len(w.Containers)+len(w.Sandboxes) == 0 && (gone || maps.Equal(counts, g.last[uid])) {
		return
	}
	if gone {
		counts = nil // its end removes them all
	}
	logs := logsOf(o, w, g.last[uid], counts)
	g.busy[uid] = true
	g.wg.Go(func() {
		r := result{uid: uid, counts: counts}
		r.err = errors.Join(g.remove(ctx, o, w), g.removeLogs(o, logs))
		select {
		case g.done <- r:
		case <-ctx.Done():
		}
	})
}

func (g *Collector) finish(r result) {
	delete(g.busy, r.uid)
	if r.err == nil {
		delete(g.retry, r.uid)
		if g.opts.Known(r.uid) {
			g.last[r.uid] = r.counts
		}
		return
	}
	delay := min(max(2*g.retry[r.uid], retryFirst), retryMax)
	g.retry[r.uid], g.due[r.uid] = delay, time.Now().Add(delay)
	g.opts.Log.Warn("remove what a pod has left", "uid", r.uid, "err", r.err, "again in", delay)
}

// remove removes containers and sandboxes, and has the observed state show it.
func (g *Collector) remove(ctx context.Context, o *pod.Observed, w work) error {
	if len(w.Containers)+len(w.Sandboxes) == 0 {
		return nil
	}
	var errs []error
	for _, c := range w.Containers {
		_, err := g.opts.Runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: c.ID})
		if err != nil && !cri.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("remove container %s: %w", c.ID, err))
			continue
		}
		if g.opts.LinkDir != "" {
			errs = append(errs,
				ignoreAbsent(removeFile(podlog.LegacyLink(g.opts.LinkDir, o.Namespace, o.Name, c.Name, c.ID))))
		}
	}
	for _, id := range w.Sandboxes {
		_, err := g.opts.Runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
		if err != nil && !cri.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("remove sandbox %s: %w", id, err))
		}
	}
	return errors.Join(errors.Join(errs...), g.opts.Observer.Refresh(ctx, o.UID))
}
