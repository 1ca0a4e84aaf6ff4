package dra

import (
	"context"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/berth-run/berth/internal/base/retry"
)

// Grace is how long a driver may be away before its ResourceSlices are deleted, the same as in the kubelet. It is long
// enough for a restart of the driver's pod.
const Grace = 30 * time.Second

// Delays after an error of the API server.
const (
	sweepFirst = time.Second
	sweepMax   = 5 * time.Minute
)

// sweep deletes the ResourceSlices of drivers that are gone, including slices from before this agent started. A driver
// that returns publishes its slices again.
func (d *drivers) sweep(ctx context.Context) {
	retries := retry.Doubling(sweepFirst, sweepMax)
	for known := false; ; {
		changed := d.changed.C()
		var next time.Time
		err := error(nil)
		if !known {
			err = d.findGone(ctx)
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
			d.opts.Log.Warn("remove ResourceSlices of drivers that are gone failed, retrying", "err", err)
			look, changed = time.After(retries.Step()), nil
		default:
			retries = retry.Doubling(sweepFirst, sweepMax)
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

// findGone adds the drivers that have slices of this node and are not connected to gone.
func (d *drivers) findGone(ctx context.Context) error {
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

// sweepOnce deletes the slices that are due. next is when more are due.
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
		d.opts.Log.Info("ResourceSlices of a DRA driver that is gone removed", "driver", name)
		d.mu.Lock()
		delete(d.gone, name)
		d.mu.Unlock()
	}
	return next, nil
}

// selector selects this node's slices; a node has no rights to others. An empty driver selects all drivers.
func (d *drivers) selector(driver string) string {
	set := fields.Set{resourceapi.ResourceSliceSelectorNodeName: d.opts.Node}
	if driver != "" {
		set[resourceapi.ResourceSliceSelectorDriver] = driver
	}
	return set.String()
}
