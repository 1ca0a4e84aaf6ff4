package csi

import (
	"context"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/pod/steps/volume"
	"github.com/berth-run/berth/internal/pod/steps/volume/csi/driver"
	"github.com/berth-run/berth/internal/pod/steps/volume/csi/usage"
	"github.com/berth-run/berth/internal/record/event"
)

// period is how often Run inspects the volumes in use.
const period = time.Minute

// Run runs the driver registry and inspects the volumes in use until ctx ends. An inspection publishes a volume again
// if its driver wants that. It expands a volume that was made larger, and asks the driver for the volume's usage. A new
// volume is inspected at once, but only its usage.
func (k *Kind) Run(ctx context.Context) error {
	k.attacher.restore()
	var parts sync.WaitGroup
	defer k.close()
	defer parts.Wait()
	parts.Go(func() { _ = k.drivers.Run(ctx) }) // it returns only when ctx ends
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
			k.pass(ctx, &parts, true)
		case <-k.newVolume.C():
			k.pass(ctx, &parts, false)
		}
	}
}

func (k *Kind) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.published {
		p.end()
	}
}

// pass starts the inspection of all volumes, or only of those never inspected before. Each has a goroutine of its own,
// so that a driver that hangs delays only its own volumes. A volume whose inspection still runs is skipped.
func (k *Kind) pass(ctx context.Context, parts *sync.WaitGroup, all bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for path, p := range k.published {
		if !p.beginInspection(all) {
			continue
		}
		parts.Go(func() {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(p.ctx, cancel)()
			if all {
				k.republish(ctx, path, p)
				k.expander.growUsed(ctx, path, p)
			}
			k.measure(ctx, path, p)
			p.endInspection()
		})
	}
}

// republish calls NodePublishVolume again for a driver with requiresRepublish.
func (k *Kind) republish(ctx context.Context, path string, p *published) {
	r := p.request
	o, err := k.drivers.CSIDriver(driverName(r))
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
		k.o.Log.Warn("cannot publish CSI volume again, retrying", "volume", targetName(r), "pod",
			r.Pod.Namespace+"/"+r.Pod.Name, "err",
			err)
	}
}

// Stats returns the usage of the volume at a path that Publish returned, from the driver's last answer. That is a
// minute old at most if the driver answers; last is nil before the first answer. It does no I/O. ok is false if the
// volume is no CSI volume or its driver reports no usage: then the caller measures the directory.
func (k *Kind) Stats(path string) (last *usage.Usage, ok bool) {
	k.mu.Lock()
	p := k.published[path]
	k.mu.Unlock()
	if p == nil {
		return nil, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	d, err := k.drivers.Get(driverName(p.request))
	if p.usage == nil && err == nil && !d.Can(csi.NodeServiceCapability_RPC_GET_VOLUME_STATS) {
		return nil, false
	}
	return p.usage, true
}

// measure asks the driver for the usage of a volume, for Stats.
func (k *Kind) measure(ctx context.Context, path string, p *published) {
	r := p.request
	d, err := k.drivers.Get(driverName(r))
	if err != nil || !d.Can(csi.NodeServiceCapability_RPC_GET_VOLUME_STATS) {
		return // there is no driver, or it reports no usage
	}
	q := &csi.NodeGetVolumeStatsRequest{VolumePath: path}
	if r.Persistent != nil {
		q.VolumeId = r.Persistent.Spec.CSI.VolumeHandle
	} else {
		q.VolumeId = inlineHandle(r.Pod.UID, r.Volume.Name)
	}
	got, err := driver.Call(driver.Migrated(ctx, r.Migrated), d.Node.NodeGetVolumeStats, q)
	if err != nil {
		if ctx.Err() == nil {
			k.o.Log.Warn("cannot ask CSI driver for the usage of a volume", "driver", d.Name, "volume", targetName(r),
				"err", err)
		}
		return
	}
	u := usage.Of(got, k.o.Now())
	if k.o.Health && d.Can(usage.Condition) {
		c := usage.ConditionOf(got)
		u.Abnormal = &c.Abnormal
		k.reportAbnormal(r, c)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.usage = u
}

// volumeConditionAbnormal is the reason of the event for a volume in an abnormal condition, in the kubelet's words.
const volumeConditionAbnormal = "VolumeConditionAbnormal"

// reportAbnormal records an event of the pod if its volume is in an abnormal condition.
func (k *Kind) reportAbnormal(r volume.Request, c usage.Health) {
	if c.Abnormal {
		k.o.Events.Event(event.PodRef(r.Pod), corev1.EventTypeWarning, volumeConditionAbnormal, "Volume %s: %s",
			r.Volume.Name, c.Message)
	}
}
