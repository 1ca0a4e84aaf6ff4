package cgroup

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/cgroupfile"
	"github.com/berth-run/berth/internal/record/event"
)

// PodCgroupVanished is the reason of the event for a pod whose cgroup somebody
// removed under it.
const PodCgroupVanished = "PodCgroupVanished"

// drift looks after cgroups that somebody else may change.
type drift interface {
	Watch(key string, s cgroupfile.Subject)
	Unwatch(key string)
	Watched(key string) bool
}

// guard is the part of Cgroups that has them looked after.
type guard struct{ *Cgroups }

func podKey(uid types.UID) string { return "pod/" + string(uid) }

func levelKey(class corev1.PodQOSClass) string { return "level/" + strings.ToLower(string(class)) }

// lookAfter has a pod's cgroup looked after. One whose limits this process has
// not set yet is right as it is.
func (c guard) lookAfter(p *corev1.Pod) {
	if c.cfg.Drift == nil || c.cfg.Drift.Watched(podKey(p.UID)) {
		return
	}
	name, t, err := c.podTree(p)
	if err != nil {
		return
	}
	c.mu.Lock()
	if c.pods[p.UID] == nil {
		c.pods[p.UID] = &held{pod: p}
	}
	c.mu.Unlock()
	x := wanted{t: t, name: name, want: func() (Limits, bool) { return c.writtenTo(p.UID) }}
	s := x.subject("pod", event.PodRef(p))
	s.Gone = func(context.Context) { c.vanished(p.UID) }
	if s.Group.Dirs != nil {
		c.cfg.Drift.Watch(podKey(p.UID), s)
	}
}

func (c guard) writtenTo(uid types.UID) (Limits, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.pods[uid]
	if h == nil || h.written == nil {
		return Limits{}, false
	}
	return explicit(*h.written), true
}

// lookAfterLevels is the same for those above pods; mu is held. A bound that is
// not ours is the operator's.
func (c guard) lookAfterLevels() {
	if c.cfg.Drift == nil {
		return
	}
	for _, class := range classes() {
		kind := "qos"
		if class == corev1.PodQOSGuaranteed {
			kind = "node"
		}
		x := wanted{t: c.tree, name: level(c.root, class), want: func() (Limits, bool) {
			c.mu.Lock()
			defer c.mu.Unlock()
			return levelLimits(class, c.asked, c.cfg), c.made
		}}
		s := x.subject(kind, c.cfg.Node)
		s.Gone = func(context.Context) { c.restore(class) }
		c.cfg.Drift.Watch(levelKey(class), s)
	}
}

// leaveAlone forgets a pod whose cgroup is to go.
func (c guard) leaveAlone(uid types.UID) {
	if c.cfg.Drift != nil {
		c.cfg.Drift.Unwatch(podKey(uid))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pods, uid)
}

// Vanished is when a pod's cgroup was last found missing under it, zero for
// never. What ran then runs outside of it, without its bounds.
func (c *Cgroups) Vanished(uid types.UID) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.pods[uid]; h != nil {
		return h.lost
	}
	return time.Time{}
}

// vanished makes a pod's cgroup again, for what will be started in it, and has
// told that what runs has to go. As under the kubelet, this is for a cgroup that
// goes while the agent looks: one that is missing when it comes up is only made.
func (c guard) vanished(uid types.UID) {
	c.mu.Lock()
	h := c.pods[uid]
	if h == nil {
		c.mu.Unlock()
		return // it is being removed
	}
	h.lost, h.fits, h.written = time.Now(), nil, nil
	p := h.pod
	c.mu.Unlock()
	c.cfg.Events.Event(event.PodRef(p), corev1.EventTypeWarning, PodCgroupVanished,
		"The pod's cgroup has vanished: what runs in the pod is killed and started again")
	if err := c.ensure(p, false); err != nil {
		c.cfg.Log.Warn("make a pod's cgroup again", "pod", p.Name, "err", err)
	}
	if c.cfg.Lost != nil {
		c.cfg.Lost(uid)
	}
}

// restore makes the levels again after one has vanished. The cgroups of its pods
// have vanished with it.
func (c guard) restore(class corev1.PodQOSClass) {
	c.mu.Lock()
	was := c.made
	c.made = false
	c.mu.Unlock()
	if !was {
		return // they are being removed
	}
	if _, err := c.levels(class); err != nil {
		c.cfg.Log.Warn("make the cgroups of all pods again", "err", err)
	}
}

// wanted is a cgroup with the limits that it should have.
type wanted struct {
	t    *tree
	name Name
	want func() (Limits, bool)
}

func (x wanted) subject(kind string, ref corev1.ObjectReference) cgroupfile.Subject {
	group, err := x.t.group(x.name)
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
			want := l.bounds().Values(x.t.unified)
			have, err := cgroupfile.Read(group, want)
			return cgroupfile.Differences(want, have), err
		},
		Repair: func(context.Context, []cgroupfile.Change) error {
			l, ok := x.want()
			if !ok {
				return nil
			}
			return x.t.set(x.name, l)
		},
	}
}
