package join

import (
	"cmp"
	"context"
	"slices"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/berth-run/berth/internal/cluster/objects"
	"github.com/berth-run/berth/internal/cluster/offline"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/pod/steps/volume/csi"
)

// record is the view of a cluster that saves pods for a boot without an API server.
type record struct{ *Cluster }

// load reads the pods that an earlier agent saved for a boot without an API server. Their tokens are used at once,
// because a token stays valid until it expires. Everything else is used only when the API server is away.
func (c record) load() {
	kept, err := c.offline.Load()
	if err != nil {
		c.Log.Error("cannot read the saved pods", "err", err)
	}
	c.kept = kept
	for _, k := range kept {
		c.tokens.Seed(k.Pod.UID, k.Tokens)
	}
}

// find implements offline.Options.Find.
func (c record) find(key object.Key) (object.Value, bool) {
	v, ok := c.Sources.Objects.Get(key)
	if !ok {
		return nil, c.objects.Received(key)
	}
	value, _ := v.(object.Value)
	return value, true
}

// sets implements offline.Options.Sets: it returns the objects for a pod that the object table does not hold.
func (c record) sets(p *corev1.Pod, named []object.Value) (s offline.Sets, known bool) {
	var err error
	if s.Services, err = c.objects.Services(p); err != nil {
		return s, false
	}
	if objects.Trusts(p) {
		s.Bundles, err = c.objects.Bundles()
		slices.SortFunc(s.Bundles, func(a, b *certificatesv1beta1.ClusterTrustBundle) int {
			return cmp.Compare(a.Name, b.Name)
		})
	}
	for _, name := range csi.Drivers(p, volumes(named)) {
		d, known := c.plugins.volumes.Drivers().Object(name)
		if !known {
			return s, false
		}
		if d != nil {
			s.Drivers = append(s.Drivers, d)
		}
	}
	return s, err == nil
}

// volumes returns the PersistentVolumes among objects.
func volumes(all []object.Value) (found []*corev1.PersistentVolume) {
	for _, v := range all {
		if pv, ok := v.(*corev1.PersistentVolume); ok {
			found = append(found, pv)
		}
	}
	return found
}

// answers reports whether the API server answers and has sent the list of this node's pods.
func (c record) answers() bool {
	select {
	case <-c.Sources.Synced():
		return !c.api.Health.State().Away()
	default:
		return false
	}
}

// restore starts the saved pods if the API server is away at the start. They run until it sends the list of this
// node's pods.
func (c record) restore(ctx context.Context) error {
	if c.away(ctx) {
		c.standIn()
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-c.Sources.Synced():
	}
	c.standsIn.Store(false)
	c.objects.EndRestore()
	c.offline.Resync()
	return nil
}

// away waits until the API server is known to be away. It returns false if the list of this node's pods came first.
func (c record) away(ctx context.Context) bool {
	health := c.api.Health.Watch()
	defer health.Stop()
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return false
		case <-c.Sources.Synced():
			return false
		case <-health.C():
			health.Changes()
		case <-again:
		}
		gone, look := away(c.api.Health.State())
		if gone {
			return true
		}
		again = nil
		if look > 0 {
			again = time.After(look)
		}
	}
}

// standIn runs the saved pods with the saved versions of the objects that they name.
func (c record) standIn() {
	if len(c.kept) > 0 {
		c.Log.Warn("the API server does not answer, starting the saved pods of this node", "pods",
			len(c.kept), "err", c.api.Health.State().Err)
	}
	pods := make([]*corev1.Pod, len(c.kept))
	known := make([]objects.Kept, len(c.kept))
	drivers := map[string]*storagev1.CSIDriver{}
	for i, k := range c.kept {
		for _, name := range csi.Drivers(k.Pod, volumes(k.Objects)) {
			drivers[name] = nil // it has no object, unless saved below
		}
		for _, d := range k.Sets.Drivers {
			drivers[d.Name] = d
		}
		pods[i] = k.Pod
		known[i] = objects.Kept{Pod: k.Pod, Objects: k.Objects, Services: k.Sets.Services, Bundles: k.Sets.Bundles}
	}
	c.standsIn.Store(true)
	c.plugins.volumes.Drivers().Restore(drivers)
	c.objects.Restore(known)
	c.Sources.Cluster.Restore(pods)
}
