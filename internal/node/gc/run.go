package gc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/base/retry"
	"github.com/berth-run/berth/internal/base/safepath"
	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/record/podlog"
)

// Delays between attempts after a failure.
const (
	retryFirst = time.Second
	retryMax   = time.Minute
)

// result is the outcome of the removals for a pod.
type result struct {
	uid    types.UID
	counts map[string]int // restart counts whose logs were checked
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
	g.wg.Go(func() { // a directory of logs may be on a file system that does not answer
		if err := g.sweep(ctx); err != nil && ctx.Err() == nil {
			g.opts.Log.Warn("cannot remove all logs of unknown pods", "err", err)
		}
	})
	observed := g.opts.Observed.Watch()
	defer observed.Stop()
	alarm := wake.NewAlarm()
	defer alarm.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-observed.C():
			for _, c := range observed.Changes() {
				g.due[c.Key] = time.Now()
			}
			g.findSurplus(time.Now())
		case <-g.wake.C():
			for uid := range g.takeGone() {
				g.due[uid] = time.Now()
			}
		case r := <-g.done:
			g.finish(r)
		case <-alarm.C():
		}
		next := g.startDue(ctx)
		alarm.Set(next, time.Now())
	}
}

// startDue starts the collection for the pods that are due, one at a time for each pod. It returns the time when the
// next is due.
func (g *Collector) startDue(ctx context.Context) (next time.Time) {
	for uid, at := range g.due {
		switch {
		case g.busy[uid]:
		case time.Until(at) <= 0:
			delete(g.due, uid)
			g.collect(ctx, uid)
		case next.IsZero() || at.Before(next):
			next = at
		}
	}
	return next
}

// findSurplus finds the dead containers that exceed the limit of the node and marks their pods as due.
func (g *Collector) findSurplus(now time.Time) {
	if g.opts.Policy.Total < 0 {
		return
	}
	var live []*pod.Observed
	for uid, o := range g.opts.Observed.Snapshot().All() {
		if g.opts.Pods.Known(uid) {
			live = append(live, o)
		}
	}
	g.excess = surplus(live, g.opts.Policy)
	for uid := range g.excess {
		g.due[uid] = now
	}
}

// collect decides about one pod and removes its garbage in a goroutine, if there is any.
func (g *Collector) collect(ctx context.Context, uid types.UID) {
	o, _ := g.opts.Observed.Get(uid)
	gone := !g.opts.Pods.Known(uid)
	if o == nil && gone {
		delete(g.last, uid)
		delete(g.failures, uid)
	}
	counts := newest(o)
	surplus := g.excess[uid]
	w, next := decide(o, gone, g.opts.Policy, surplus, time.Now())
	if !next.IsZero() {
		g.due[uid] = next
	}
	if len(w.Containers)+len(w.Sandboxes) == 0 && (gone || maps.Equal(counts, g.last[uid])) {
		return
	}
	if gone {
		counts = nil // the end of the pod removes all of its logs
	}
	logs := logsOf(o, w, g.last[uid], counts)
	g.busy[uid] = true
	g.wg.Go(func() {
		r := result{uid: uid, counts: counts}
		r.err = errors.Join(g.remove(ctx, o, w), g.removeLogs(o, logs))
		if r.err == nil && !gone {
			for _, text := range removedMessages(o, w, g.opts.Policy, surplus) {
				g.opts.Events.Event(g.opts.Node, corev1.EventTypeNormal, reason.ContainersRemoved, "%s", text)
			}
		}
		select {
		case g.done <- r:
		case <-ctx.Done():
		}
	})
}

func (g *Collector) finish(r result) {
	delete(g.busy, r.uid)
	if r.err == nil {
		delete(g.failures, r.uid)
		if g.opts.Pods.Known(r.uid) {
			g.last[r.uid] = r.counts
		}
		return
	}
	g.failures[r.uid]++
	delay := retry.Delay(retryFirst, retryMax, g.failures[r.uid])
	g.due[r.uid] = time.Now().Add(delay)
	g.opts.Log.Warn("cannot remove the garbage of a pod, retrying", "uid", r.uid, "err", r.err, "delay", delay)
	g.opts.Events.Event(g.opts.Node, corev1.EventTypeWarning, reason.ContainerGCFailed, "%v", r.err)
}

// remove removes containers and sandboxes and updates the observed state.
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
			link := podlog.LegacyLink(g.opts.LinkDir, o.Namespace, o.Name, c.Name, c.ID)
			errs = append(errs, safepath.IgnoreMissing(removeFile(link)))
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
