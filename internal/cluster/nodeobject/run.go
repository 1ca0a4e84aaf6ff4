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

	"github.com/berth-run/berth/internal/node/condition"
)

const (
	// registration is tried again after 100 ms, twice that and so on up to 7 s, as
	// by the kubelet.
	firstRetry, lastRetry = 100 * time.Millisecond, 7 * time.Second
	// apart is the least time between two statuses, so that facts that change
	// together are sent together.
	apart = 100 * time.Millisecond
	// callWithin bounds one call, so that a server that hangs does not hold up the next.
	callWithin = 10 * time.Second
)

// Run registers the node, unless it is told not to, and keeps its status until
// ctx ends. That the API server is away is no error.
func (x *Object) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { x.watch(ctx); return nil })
	group.Go(func() error {
		if x.o.Register {
			if !x.register(ctx) {
				return nil
			}
			if x.o.Registered != nil {
				x.o.Registered()
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-x.heard:
		}
		x.keep(ctx)
		return nil
	})
	return group.Wait()
}

// register returns whether the object is there.
func (x *Object) register(ctx context.Context) bool {
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		err := x.tryRegister(ctx)
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		x.o.Log.Warn("Cannot register the node", "node", x.o.Config.Machine.Name, "err", err, "again in", wait)
		if !sleep(ctx, wait) {
			return false
		}
	}
}

// tryRegister makes the object, or brings the one that is there up to date. A node
// that may not make it may still have one.
func (x *Object) tryRegister(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	x.sending.Lock()
	defer x.sending.Unlock()
	nodes, facts := x.o.Client.CoreV1().Nodes(), x.facts(ctx)
	n, err := nodes.Create(ctx, Build(facts, time.Now()), metav1.CreateOptions{})
	if err == nil {
		x.o.Log.Info("Registered the node", "node", n.Name)
		x.hear(n, false)
		for _, reason := range condition.Events(nil, n.Status.Conditions) {
			x.tell(reason)
		}
		return nil
	}
	if !apierrors.IsAlreadyExists(err) && !apierrors.IsForbidden(err) {
		return fmt.Errorf("create node %s: %w", x.o.Config.Machine.Name, err)
	}
	there, getErr := nodes.Get(ctx, x.o.Config.Machine.Name, metav1.GetOptions{})
	if getErr != nil {
		if apierrors.IsForbidden(err) {
			return fmt.Errorf("create node %s: %w", x.o.Config.Machine.Name, err)
		}
		return fmt.Errorf("get node %s: %w", x.o.Config.Machine.Name, getErr)
	}
	x.announceReboot(there)
	x.hear(there, false)
	return x.send(ctx, there, Reconcile(there, facts, time.Now()))
}

// keep sends the status when it is due until ctx ends.
func (x *Object) keep(ctx context.Context) {
	retry := firstRetry
	for {
		changed := x.o.Inputs.Conditions.Changed()
		wait := time.Duration(float64(x.o.UpdateEvery) * (1 + 0.04*rand.Float64()))
		if err := x.update(ctx, retry > firstRetry); err != nil && ctx.Err() == nil {
			x.o.Log.Warn("Cannot update the status of the node", "err", err)
			wait = min(retry, x.o.UpdateEvery)
			retry = min(2*retry, lastRetry)
		} else {
			retry = firstRetry
		}
		if !sleep(ctx, min(apart, wait)) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-x.poke:
		case <-time.After(wait):
		}
	}
}

// Report computes the status and sends it now if it says something new, as when
// the machine is about to go down.
func (x *Object) Report(ctx context.Context) error {
	if n, _ := x.last(); n == nil {
		return fmt.Errorf("send status of node %s: it is not registered yet", x.o.Config.Machine.Name)
	}
	return x.update(ctx, false)
}

// update sends the status if it is due. fresh asks for the object first: what
// was heard may be too old to send a difference to.
func (x *Object) update(ctx context.Context, fresh bool) error {
	ctx, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	x.sending.Lock()
	defer x.sending.Unlock()
	was, gone := x.last()
	if gone {
		return nil
	}
	if fresh || x.isDoubted() {
		asked := time.Now()
		n, err := x.o.Client.CoreV1().Nodes().Get(ctx, was.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			x.lose("")
			return nil
		case err != nil:
			return fmt.Errorf("get node %s: %w", was.Name, err)
		}
		x.hear(n, false)
		x.confirm(asked)
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
		// Nodes that changed together do not report together ever after.
		delay = time.Duration(float64(x.o.ReportEvery) * (rand.Float64() - 0.5))
	}
	if err := x.send(ctx, was, next); err != nil {
		if apierrors.IsNotFound(err) {
			x.lose("")
			return nil
		}
		return err
	}
	s.delay = delay
	return nil
}

// send makes next of was and tells what changed.
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
	x.hear(n, false)
	for _, reason := range condition.Events(was.Status.Conditions, next.Status.Conditions) {
		x.tell(reason)
	}
	return nil
}

func (x *Object) announceReboot(there *corev1.Node) {
	was, now := there.Status.NodeInfo.BootID, x.o.Config.Machine.Info.BootID
	if was != "" && was != now && !x.report.announced {
		x.report.announced = true
		x.o.Events.Event(x.o.Ref, corev1.EventTypeWarning, "Rebooted", "Node %s has been rebooted, boot id: %s",
			there.Name, now)
	}
}

// facts are all there are; images that cannot be listed are those before.
func (x *Object) facts(ctx context.Context) Facts {
	f := x.quickFacts()
	if x.o.Inputs.Images != nil {
		if images, err := x.o.Inputs.Images(ctx); err == nil {
			x.report.images = images
		} else if ctx.Err() == nil {
			x.o.Log.Debug("Cannot list images for the status of the node", "err", err)
		}
		f.Images = x.report.images
	}
	return f
}

// sleep returns whether ctx is still good after that time.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
