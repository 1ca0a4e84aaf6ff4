package cgroup

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/cgroupfile"
	"github.com/berth-run/berth/internal/pod/steps/cgroup/hierarchy"
	"github.com/berth-run/berth/internal/record/event"
)

// PodCgroupVanished is the reason of the event for a pod whose cgroup was removed from outside.
const PodCgroupVanished = "PodCgroupVanished"

// drift watches cgroups for changes from outside.
type drift interface {
	Watch(key string, s cgroupfile.Subject)
	Unwatch(key string)
	Watched(key string) bool
}

func podKey(uid types.UID) string { return "pod/" + string(uid) }

// watch makes Drift watch a pod's cgroup. Until this process has set the limits of the cgroup, any limits are right.
func (c *Cgroups) watch(p *corev1.Pod) {
	if c.cfg.Drift == nil || c.cfg.Drift.Watched(podKey(p.UID)) {
		return
	}
	name, t, err := c.host.pod(p)
	if err != nil {
		return
	}
	c.pods.add(p)
	w := wanted{t: t, name: name, want: func() (hierarchy.Limits, bool) { return c.pods.written(p.UID) }}
	s := w.subject("pod", event.PodRef(p))
	s.Gone = func(context.Context) { c.restore(p.UID) }
	if s.Group.Dirs != nil {
		c.cfg.Drift.Watch(podKey(p.UID), s)
	}
}

// forget drops a pod whose cgroup is about to be removed.
func (c *Cgroups) forget(uid types.UID) {
	if c.cfg.Drift != nil {
		c.cfg.Drift.Unwatch(podKey(uid))
	}
	c.pods.forget(uid)
}

// Vanished returns when a pod's cgroup was last found missing, or zero. Containers that started before that time run
// outside of the cgroup and without its limits.
func (c *Cgroups) Vanished(uid types.UID) time.Time { return c.pods.vanished(uid) }

// restore makes a pod's vanished cgroup again for new containers, and wakes its worker so that the old ones are killed.
// As in the kubelet, this happens only if the cgroup vanishes while the agent runs. If it is missing at the agent's
// start, it is only made again.
func (c *Cgroups) restore(uid types.UID) {
	p := c.pods.lose(uid)
	if p == nil {
		return // it is being removed
	}
	c.cfg.Events.Event(event.PodRef(p), corev1.EventTypeWarning, PodCgroupVanished,
		"The pod's cgroup has vanished: its containers are killed and started again")
	if err := c.ensure(p, false); err != nil {
		c.cfg.Log.Warn("cannot make a vanished pod cgroup again, retrying at the pod's next setup", "pod", p.Name,
			"err", err)
	}
	c.cfg.Fleet.Wake(uid)
}

// wanted is a cgroup with the limits that it should have. want returns false while any limits are right.
type wanted struct {
	t    *hierarchy.Tree
	name hierarchy.Name
	want func() (hierarchy.Limits, bool)
}

func (x wanted) subject(kind string, ref corev1.ObjectReference) cgroupfile.Subject {
	group, err := x.t.Group(x.name)
	if err != nil {
		return cgroupfile.Subject{}
	}
	return cgroupfile.Subject{
		Level: kind, Group: group, Ref: ref,
		Differs: func(context.Context) ([]cgroupfile.Change, error) {
			l, ok := x.want()
			if !ok {
				return nil, nil
			}
			want := l.Bounds().Values(x.t.Unified())
			current, err := cgroupfile.Read(group, want)
			return cgroupfile.Differences(want, current), err
		},
		Repair: func(context.Context, []cgroupfile.Change) error {
			l, ok := x.want()
			if !ok {
				return nil
			}
			return x.t.Set(x.name, l)
		},
	}
}
