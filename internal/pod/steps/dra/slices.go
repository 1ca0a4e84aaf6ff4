package dra

import (
	"context"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

// Grace is how long a driver may be away before its ResourceSlices are removed, as
// under the kubelet: long enough for a restart of its pod.
const Grace = 30 * time.Second

// Delays between tries of what the API server has refused.
const (
	sweepFirst = time.Second
	sweepMax   = 5 * time.Minute
)

// sweep removes the ResourceSlices of drivers that are away, those too that an
// earlier agent left. A driver that comes back publishes anew.
func (d *drivers) sweep(ctx context.Context) {
	delay := sweepFirst
	for known := false; ; {
		changed := d.changes()
		var next time.Time
		err := error(nil)
		if !known {
			err = d.learn(ctx)
			known = err == nil
		}
		if err == nil {
			next, err = d.sweepOnce(ctx)
		}
		var look <-chan time.Time
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			d.opts.Log.Warn("remove ResourceSlices of drivers that are gone", "err", err)
			look, changed = time.After(delay), nil
			delay = min(2*delay, sweepMax)
		default:
			delay = sweepFirst
			if !next.IsZero() {
				look = time.After(max(0, next.Sub(d.opts.Now())))
			}
		}
		select {
		case <-look:
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// learn notes the drivers that have slices of this node and do not serve.
func (d *drivers) learn(ctx context.Context) error {
	list, err := d.opts.Client.ResourceV1().ResourceSlices().List(ctx,
		metav1.ListOptions{FieldSelector: d.selector("")})
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range list.Items {
		if _, known := d.gone[s.Spec.Driver]; !known {
			d.gone[s.Spec.Driver] = d.opts.Now()
		}
	}
	for _, r := range d.registered {
		if r.connected {
			delete(d.gone, r.Name)
		}
	}
	return nil
}

// sweepOnce removes what is due. next is when more is.
func (d *drivers) sweepOnce(ctx context.Context) (next time.Time, err error) {
	d.mu.Lock()
	names, next := due(d.gone, d.opts.Now())
	d.mu.Unlock()
	for _, name := range names {
		err := d.opts.Client.ResourceV1().ResourceSlices().DeleteCollection(ctx, metav1.DeleteOptions{},
			metav1.ListOptions{FieldSelector: d.selector(name)})
		if err != nil {
			return time.Time{}, err
		}
		d.opts.Log.Info("DRA driver is gone: its ResourceSlices are removed", "driver", name)
		d.mu.Lock()
		delete(d.gone, name)
		d.mu.Unlock()
	}
	return next, nil
}

// selector is of this node's slices, which are all that a node may touch; driver "":
// of all drivers.
func (d *drivers) selector(driver string) string {
	set := fields.Set{resourceapi.ResourceSliceSelectorNodeName: d.opts.Node}
	if driver != "" {
		set[resourceapi.ResourceSliceSelectorDriver] = driver
	}
	return set.String()
}
