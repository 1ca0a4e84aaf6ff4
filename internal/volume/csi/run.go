package csi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// period of what is done with volumes in use.
const period = time.Minute

// Run follows the CSIDriver objects and looks after the volumes in use until ctx
// ends: it publishes those again whose driver wants that, expands those that were
// made larger, and asks drivers again how many volumes they can have. It closes the
// connections to drivers at its end.
func (k *Kind) Run(ctx context.Context) error {
	k.count()
	var parts sync.WaitGroup
	defer k.close()
	defer parts.Wait()
	parts.Go(func() { k.watchDrivers(ctx) })
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
			k.pass(ctx)
		}
	}
}

func (k *Kind) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, d := range k.drivers {
		_ = d.conn.Close() // there is nothing to lose
	}
	for _, p := range k.published {
		p.end()
	}
	clear(k.drivers)
}

// pass looks at all volumes and drivers once, side by side.
func (k *Kind) pass(ctx context.Context) {
	k.mu.Lock()
	volumes, drivers := maps.Clone(k.published), maps.Clone(k.drivers)
	k.mu.Unlock()
	var all sync.WaitGroup
	defer all.Wait()
	for path, p := range volumes {
		all.Go(func() {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(p.ctx, cancel)()
			k.republish(ctx, path, p)
			k.grow(ctx, path, p)
		})
	}
	for _, d := range drivers {
		all.Go(func() { k.recount(ctx, d) })
	}
}

// republish calls NodePublishVolume again for a driver with requiresRepublish.
func (k *Kind) republish(ctx context.Context, path string, p *published) {
	r := p.request
	o, err := k.object(driverName(r))
	if err != nil || o == nil || o.Spec.RequiresRepublish == nil || !*o.Spec.RequiresRepublish {
		return
	}
	unlock, err := k.targets.lock(ctx, r.Target)
	if err != nil {
		return
	}
	defer unlock()
	if p.ctx.Err() != nil {
		return
	}
	if err := k.publish(ctx, r, path); err != nil && ctx.Err() == nil {
		k.o.Log.Warn("publish CSI volume again", "volume", claimName(r), "pod", r.Pod.Namespace+"/"+r.Pod.Name, "err", err)
	}
}

// recount asks a driver again how many volumes it can have (KEP-4876): each
// nodeAllocatableUpdatePeriodSeconds, and when a volume could not be attached for
// want of room.
func (k *registry) recount(ctx context.Context, d *driver) {
	if k.o.Client == nil {
		return
	}
	now := k.o.Now()
	var every time.Duration
	if o, err := k.object(d.name); err == nil && o != nil && o.Spec.NodeAllocatableUpdatePeriodSeconds != nil {
		every = time.Duration(*o.Spec.NodeAllocatableUpdatePeriodSeconds) * time.Second
	}
	k.mu.Lock()
	due := !d.due.IsZero() && !now.Before(d.due)
	switch {
	case every > 0 && (due || d.due.IsZero()):
		d.due = now.Add(every)
	case every == 0:
		d.due, due = time.Time{}, false
	}
	k.mu.Unlock()
	if !due {
		return
	}
	if err := k.announce(ctx, d); err != nil && ctx.Err() == nil {
		k.o.Log.Warn("ask CSI driver how many volumes it can have", "driver", d.name, "err", err)
	}
}

// Usage of a volume, in bytes and inodes; nil for what the driver does not tell.
type Usage struct {
	Capacity, Available, Used      *uint64
	Inodes, InodesFree, InodesUsed *uint64
}

// ErrNoStats is of a volume of which the driver tells no usage, or which is none of
// CSI: it is for others to measure.
var ErrNoStats = errors.New("no driver tells of its usage")

// Stats are what the driver says of the volume at a path that Publish has returned.
func (k *Kind) Stats(ctx context.Context, path string) (Usage, error) {
	k.mu.Lock()
	p := k.published[path]
	k.mu.Unlock()
	if p == nil {
		return Usage{}, ErrNoStats
	}
	d, err := k.driver(driverName(p.request))
	if err != nil {
		return Usage{}, err
	}
	if !d.has(csi.NodeServiceCapability_RPC_GET_VOLUME_STATS) {
		return Usage{}, ErrNoStats
	}
	q := &csi.NodeGetVolumeStatsRequest{VolumePath: path}
	if r := p.request; r.Persistent != nil {
		q.VolumeId = r.Persistent.Spec.CSI.VolumeHandle
	} else {
		q.VolumeId = inlineHandle(r.Pod.UID, r.Volume.Name)
	}
	got, err := call(ctx, d.node.NodeGetVolumeStats, q)
	if err != nil {
		return Usage{}, fmt.Errorf("NodeGetVolumeStats of CSI driver %s: %w", d.name, err)
	}
	return usageOf(got), nil
}

func usageOf(got *csi.NodeGetVolumeStatsResponse) (u Usage) {
	for _, one := range got.GetUsage() {
		total, free, used := uint64(max(0, one.GetTotal())), uint64(max(0, one.GetAvailable())), uint64(max(0, one.GetUsed()))
		switch one.GetUnit() {
		case csi.VolumeUsage_BYTES:
			u.Capacity, u.Available, u.Used = &total, &free, &used
		case csi.VolumeUsage_INODES:
			u.Inodes, u.InodesFree, u.InodesUsed = &total, &free, &used
		case csi.VolumeUsage_UNKNOWN: // says nothing
		}
	}
	return u
}
