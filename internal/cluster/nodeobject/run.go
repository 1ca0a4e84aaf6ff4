package nodeobject

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/retry"
	"github.com/berth-run/berth/internal/node/condition"
)

const (
	// Registration is retried after 100 ms, then twice that and so on up to 7 s, as by the kubelet.
	firstRetry, lastRetry = 100 * time.Millisecond, 7 * time.Second
	// minInterval is the least time between two statuses, so that facts that change together are sent together.
	minInterval = 100 * time.Millisecond
	// callTimeout limits one call, so that a server that hangs does not delay the next one.
	callTimeout = 10 * time.Second
)

// Run registers the node if Options.Register is set, and keeps its status until ctx ends. It retries while the API
// server is away.
func (x *Object) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { x.watch(ctx); return nil })
	group.Go(func() error {
		if x.o.Register {
			if !x.register(ctx) {
				return nil
			}
			close(x.registered)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-x.Received():
		}
		x.keep(ctx)
		return nil
	})
	return group.Wait()
}

// register retries until the object exists. It returns false if ctx ends first.
func (x *Object) register(ctx context.Context) bool {
	failed := func(err error, next time.Duration) {
		x.o.Log.Warn("cannot register the node, retrying", "node", x.o.Config.Machine.Name, "err", err, "after", next)
	}
	return retry.Until(ctx, retry.Doubling(firstRetry, lastRetry), x.tryRegister, failed) == nil
}

// tryRegister creates the object, or updates the existing one. A node that may not create the object may still have
// one.
func (x *Object) tryRegister(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	x.sending.Lock()
	defer x.sending.Unlock()
	nodes, facts := x.o.Client.CoreV1().Nodes(), x.facts(ctx)
	n, err := nodes.Create(ctx, Build(facts, time.Now()), metav1.CreateOptions{})
	if err == nil {
		x.o.Log.Info("node registered", "node", n.Name)
		x.receive(n, false)
		for _, reason := range condition.Events(nil, n.Status.Conditions) {
			x.record(reason)
		}
		return nil
	}
	if !apierrors.IsAlreadyExists(err) && !apierrors.IsForbidden(err) {
		return fmt.Errorf("create node %s: %w", x.o.Config.Machine.Name, err)
	}
	existing, getErr := nodes.Get(ctx, x.o.Config.Machine.Name, metav1.GetOptions{})
	if getErr != nil {
		if apierrors.IsForbidden(err) {
			return fmt.Errorf("create node %s: %w", x.o.Config.Machine.Name, err)
		}
		return fmt.Errorf("get node %s: %w", x.o.Config.Machine.Name, getErr)
	}
	x.announceReboot(existing)
	x.receive(existing, false)
	return x.send(ctx, existing, Reconcile(existing, facts, time.Now()))
}

// keep sends the status whenever it is due, until ctx ends.
func (x *Object) keep(ctx context.Context) {
	failures := 0
	for {
		changed := x.o.Conditions.Changed()
		wait := time.Duration(float64(x.o.UpdateEvery) * (1 + 0.04*rand.Float64()))
		if err := x.update(ctx, failures > 0); err != nil && ctx.Err() == nil {
			failures++
			wait = min(retry.Delay(firstRetry, lastRetry, failures), x.o.UpdateEvery)
			x.o.Log.Warn("cannot update the status of the node, retrying", "err", err, "after", wait)
		} else {
			failures = 0
		}
		if retry.Sleep(ctx, min(minInterval, wait)) != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-x.FactsChanged.C():
		case <-time.After(wait):
		}
	}
}

// update sends the status if it is due. With reload it reads the object first, because the stored one may be too old
// to compute a patch.
func (x *Object) update(ctx context.Context, reload bool) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	x.sending.Lock()
	defer x.sending.Unlock()
	was, gone, doubted := x.last()
	if gone {
		return nil
	}
	if reload || doubted {
		requested := time.Now()
		n, err := x.o.Client.CoreV1().Nodes().Get(ctx, was.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			x.remove("")
			return nil
		case err != nil:
			return fmt.Errorf("get node %s: %w", was.Name, err)
		}
		x.receive(n, false)
		x.confirm(requested)
		was = n
	}
	now := time.Now()
	next := Update(was, x.facts(ctx), now)
	changed := Changed(was, next)
	s := &x.report
	if !changed && !s.sent.IsZero() && now.Sub(s.sent) < x.o.ReportEvery+s.delay {
		return nil
	}
	delay := time.Duration(0)
	if changed || s.sent.IsZero() {
		// The random delay keeps nodes that changed together from reporting together ever after.
		delay = time.Duration(float64(x.o.ReportEvery) * (rand.Float64() - 0.5))
	}
	if err := x.send(ctx, was, next); err != nil {
		if apierrors.IsNotFound(err) {
			x.remove("")
			return nil
		}
		return err
	}
	s.delay = delay
	return nil
}

// send patches the object from was to next, and records an event for each changed condition.
func (x *Object) send(ctx context.Context, was, next *corev1.Node) error {
	patch, err := Patch(was, next)
	if err != nil {
		return err
	}
	n, err := x.o.Client.CoreV1().Nodes().Patch(ctx, was.Name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("patch status of node %s: %w", was.Name, err)
	}
	x.report.sent = time.Now()
	x.receive(n, false)
	for _, reason := range condition.Events(was.Status.Conditions, next.Status.Conditions) {
		x.record(reason)
	}
	return nil
}

func (x *Object) announceReboot(existing *corev1.Node) {
	was, now := existing.Status.NodeInfo.BootID, x.o.Config.Machine.Info.BootID
	if was != "" && was != now && !x.report.announced {
		x.report.announced = true
		x.o.Events.Event(x.o.Ref, corev1.EventTypeWarning, "Rebooted", "Node %s has been rebooted, boot id: %s",
			existing.Name, now)
	}
}

// facts returns all facts. If the images cannot be listed, it uses the previous list.
func (x *Object) facts(ctx context.Context) Facts {
	f := x.quickFacts()
	if images, err := x.o.Inputs.Images(ctx); err == nil {
		x.report.images = images
	} else if ctx.Err() == nil {
		x.o.Log.Debug("cannot list images for the status of the node, the previous list stays", "err", err)
	}
	f.Images = x.report.images
	return f
}
