package join

import (
	"cmp"
	"context"
	"slices"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/object"
	objects "github.com/berth-run/berth/internal/object/cluster"
	"github.com/berth-run/berth/internal/offline"
)

// record is a cluster as far as pods are kept of it for a boot without an API
// server.
type record struct{ *Cluster }

// remember reads what was kept for a boot without an API server. Objects that a
// kept pod names and that were not there then count as not there until the API
// server says better.
func (c record) remember() {
	kept, err := c.offline.Load()
	if err != nil {
		c.Log.Error("read what is kept of the cluster's pods", "err", err)
	}
	c.kept = kept
	there := map[object.Key]bool{}
	for _, k := range kept {
		for _, v := range k.Objects {
			there[object.KeyOf(v)] = true
		}
		c.tokens.Seed(k.Pod.UID, k.Tokens)
	}
	var absent []object.Key
	for _, k := range kept {
		for _, key := range objects.Named(k.Pod) {
			if !there[key] {
				absent = append(absent, key)
			}
		}
	}
	c.objects.Seed(absent...)
}

// find is an object as offline asks for it.
func (c record) find(key object.Key) (object.Value, bool) {
	v, ok := c.Sources.Objects.Get(key)
	if !ok {
		return nil, c.objects.Heard(key)
	}
	value, _ := v.(object.Value)
	return value, true
}

// sets are the collections that a pod is told of as offline asks for them.
func (c record) sets(p *corev1.Pod) (s offline.Sets, known bool) {
	var err error
	if s.Services, err = c.objects.Services(p); err != nil {
		return s, false
	}
	if objects.Trusts(p) {
		s.Bundles, err = c.objects.Bundles()
		slices.SortFunc(s.Bundles, func(a, b *certificatesv1beta1.ClusterTrustBundle) int { return cmp.Compare(a.Name, b.Name) })
	}
	return s, err == nil
}

// answers says that the API server was heard, and has said which pods it wants here.
func (c record) answers() bool {
	select {
	case <-c.Sources.Synced():
		return !c.api.Health.State().Away()
	default:
		return false
	}
}

// restored are the pods that were kept, as the API server would give them.
func (c record) restored() (pods []*corev1.Pod) {
	for _, k := range c.kept {
		pods = append(pods, k.Pod)
	}
	return pods
}

// patience is how long an API server may take to answer before the pods of the
// last time are started without it.
const patience = 10 * time.Second

// restore has the pods of the last time wanted when the API server does not
// answer, until it does.
func (c record) restore(ctx context.Context) error {
	late := time.NewTimer(patience)
	defer late.Stop()
	health := c.api.Health.Watch()
	defer health.Stop()
	for away := false; !away; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.Sources.Synced():
			c.offline.Heard()
			return nil
		case <-health.C():
			for _, change := range health.Changes() {
				away = away || change.Value.Away()
			}
		case <-late.C:
			away = true
		}
	}
	if len(c.kept) > 0 {
		c.Log.Warn("the API server does not answer: this node's pods start as they were when it was last heard", "pods", len(c.kept), "err", c.api.Health.State().Err)
	}
	for _, k := range c.kept {
		for _, v := range k.Objects {
			c.Sources.Cluster.Objects().Put(v)
		}
		c.objects.Restore(k.Pod, k.Sets.Services, k.Sets.Bundles)
	}
	c.Sources.Cluster.Restore(c.restored())
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-c.Sources.Synced():
		c.offline.Heard()
	}
	return nil
}
