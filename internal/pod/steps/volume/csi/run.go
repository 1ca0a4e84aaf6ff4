package csi

import (
	"context"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// period of what is done with volumes in use.
const period = time.Minute

// Run tells the cluster of drivers, follows the CSIDriver objects and looks after the
// volumes in use until ctx ends: it publishes those again whose driver wants that, expands those that were
// made larger, and asks drivers what their volumes take and how many they can have.
// It closes the connections to drivers at its end.
func (k *Kind) Run(ctx context.Context) error {
	k.count()
	var parts sync.WaitGroup
	defer k.close()
	defer parts.Wait()
	parts.Go(func() { k.watchDrivers(ctx) })
	parts.Go(func() { _ = k.cluster.Run(ctx) }) // until ctx ends
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
			k.pass(ctx, &parts, true)
		case <-k.fresh:
			k.pass(ctx, &parts, false)
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

// pass begins to look at all volumes and drivers, or at those volumes alone that it
// has never looked at. One that is still looked at is left alone: a driver that
// hangs holds up nothing but its own.
func (k *Kind) pass(ctx context.Context, parts *sync.WaitGroup, all bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for path, p := range k.published {
		if p.tending || !all && p.tended {
			continue
		}
		p.tending, p.tended = true, true
		parts.Go(func() {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(p.ctx, cancel)()
			if all {
				k.republish(ctx, path, p)
				k.growUsed(ctx, path, p)
			}
			k.measure(ctx, path, p)
			k.mu.Lock()
			defer k.mu.Unlock()
			p.tending = false
		})
	}
	for _, d := range k.drivers {
		if all && !d.asking {
			d.asking = true
			parts.Go(func() {
				k.recount(ctx, d)
				k.mu.Lock()
				defer k.mu.Unlock()
				d.asking = false
			})
		}
	}
}

// republish calls NodePublishVolume again for a driver with requiresRepublish.
func (k *Kind) republish(ctx context.Context, path string, p *published) {
	r := p.request
	o, err := k.object(driverName(r))
	if err != nil || o == nil || o.Spec.RequiresRepublish == nil || !*o.Spec.RequiresRepublish {
		return
	}
	unlock, err := k.targets.Lock(ctx, r.Target)
	if err != nil {
		return
	}
	defer unlock()
	if p.ctx.Err() != nil {
		return
	}
	if err := k.publish(ctx, r, path); err != nil && ctx.Err() == nil {
		k.o.Log.Warn("publish CSI volume again", "volume", claimName(r), "pod", r.Pod.Namespace+"/"+r.Pod.Name, "err",
			err)
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
	At                             time.Time
	Capacity, Available, Used      *uint64
	Inodes, InodesFree, InodesUsed *uint64
}

// Stats are what the driver told last, as a rule within a minute, of the volume at a
// path that Publish has returned; nil while it has told nothing. It asks nobody. ok
// is false where no driver tells of usage: it is for others to measure.
func (k *Kind) Stats(path string) (last *Usage, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	p := k.published[path]
	if p == nil {
		return nil, false
	}
	d := k.drivers[driverName(p.request)]
	if p.usage == nil && d != nil && !d.has(csi.NodeServiceCapability_RPC_GET_VOLUME_STATS) {
		return nil, false
	}
	return p.usage, true
}

// measure asks the driver what a volume takes, for Stats.
func (k *Kind) measure(ctx context.Context, path string, p *published) {
	r := p.request
	d, err := k.driver(driverName(r))
	if err != nil || !d.has(csi.NodeServiceCapability_RPC_GET_VOLUME_STATS) {
		return // it is gone, or tells nothing
	}
	q := &csi.NodeGetVolumeStatsRequest{VolumePath: path}
	if r.Persistent != nil {
		q.VolumeId = r.Persistent.Spec.CSI.VolumeHandle
	} else {
		q.VolumeId = inlineHandle(r.Pod.UID, r.Volume.Name)
	}
	got, err := call(ctx, d.node.NodeGetVolumeStats, q)
	if err != nil {
		if ctx.Err() == nil {
			k.o.Log.Warn("ask CSI driver what a volume takes", "driver", d.name, "volume", claimName(r), "err", err)
		}
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	p.usage = usageOf(got, k.o.Now())
}

func usageOf(got *csi.NodeGetVolumeStatsResponse, now time.Time) *Usage {
	u := &Usage{At: now}
	for _, one := range got.GetUsage() {
		total, free, used := uint64(max(0, one.GetTotal())), uint64(max(0, one.GetAvailable())),
			uint64(max(0, one.GetUsed()))
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
