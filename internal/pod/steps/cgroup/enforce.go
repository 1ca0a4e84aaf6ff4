package cgroup

import (
	"fmt"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Reasons of events about the node, as the kubelet's.
const (
	NodeAllocatableEnforced          = "NodeAllocatableEnforced"
	FailedNodeAllocatableEnforcement = "FailedNodeAllocatableEnforcement"
)

// Reserved is a cgroup beside the pods', such as /system.slice, that is bounded to
// what is reserved for it. It is never made here.
type Reserved struct {
	// For is who it is reserved for, as events say it.
	For string
	// Path is its place as cgroupfs spells it, or that of a slice.
	Path    string
	Amounts corev1.ResourceList
	// Compressible bounds the CPU only.
	Compressible bool
}

// enforcer is the part of Cgroups that bounds what is reserved.
type enforcer struct{ *Cgroups }

// enforce bounds all that is not bounded yet, and says whether something is left.
// What is told is told once.
func (c enforcer) enforce() (left bool) {
	for _, r := range c.cfg.Reserved {
		key := r.For
		if c.done(key) {
			continue
		}
		if err := c.bound(r); err != nil {
			left = true
			c.tell(key, fmt.Sprintf("Failed to enforce %s Cgroup Limits on %q: %v", r.For, r.Path, err))
			continue
		}
		c.enforced(key)
		c.cfg.Events.Event(c.cfg.Node, corev1.EventTypeNormal, NodeAllocatableEnforced,
			"Updated limits on %s cgroup %s", strings.ToLower(r.For), r.Path)
	}
	for _, class := range classes() {
		name := level(c.root, class)
		if !c.owed(name) {
			continue
		}
		if err := c.level(class); err != nil {
			left = true
			c.failed(name, err)
			continue
		}
		c.enforced(name.Cgroupfs())
		c.cfg.Events.Event(c.cfg.Node, corev1.EventTypeNormal, NodeAllocatableEnforced,
			"Updated Node Allocatable limit across pods")
	}
	return left
}

func (c enforcer) bound(r Reserved) error {
	t, err := c.open()
	if err != nil {
		return err
	}
	name := parseExisting(r.Path, c.cfg.Driver)
	l := reservedLimits(r, c.cfg.Options)
	g, err := t.group(name)
	if err != nil {
		return err
	}
	g = g.Present()
	for controller, needed := range map[string]bool{"cpu": l.Shares > 0, "memory": l.Memory > 0, "pids": l.Pids > 0} {
		if _, ok := g.Dir(controller); needed && t.controllers[controller] && !ok {
			return fmt.Errorf("it has no cgroup in the controller %s; make it, or change the configuration", controller)
		}
	}
	if err := t.set(name, l); err != nil {
		return err
	}
	if c.cfg.Drift != nil {
		x := wanted{t: t, name: name, want: func() (Limits, bool) { return l, true }}
		s := x.subject("node", c.cfg.Node)
		s.Group = g
		c.cfg.Drift.Watch("reserved/"+name.Cgroupfs(), s)
	}
	return nil
}

func (c enforcer) level(class corev1.PodQOSClass) error {
	t, err := c.open()
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return t.set(level(c.root, class), levelLimits(class, c.asked, c.cfg))
}

// failed notes that a level does not have its limits, for the next try.
func (c enforcer) failed(name Name, err error) {
	c.tell(name.Cgroupfs(), fmt.Sprintf("Failed to update Node Allocatable Limits %q: %v", name.Cgroupfs(), err))
	c.changed.Wake()
}

func (c enforcer) tell(key, message string) {
	c.enforcing.Lock()
	news := c.told[key] != message
	c.told[key] = message
	c.enforcing.Unlock()
	if news {
		c.cfg.Events.Event(c.cfg.Node, corev1.EventTypeWarning, FailedNodeAllocatableEnforcement, "%s", message)
	}
}

// done and owed say what became of the last try; it is "" when it went well.
func (c enforcer) done(key string) bool {
	c.enforcing.Lock()
	defer c.enforcing.Unlock()
	text, tried := c.told[key]
	return tried && text == ""
}

func (c enforcer) owed(name Name) bool {
	c.enforcing.Lock()
	defer c.enforcing.Unlock()
	return c.told[name.Cgroupfs()] != ""
}

func (c enforcer) enforced(key string) {
	c.enforcing.Lock()
	defer c.enforcing.Unlock()
	c.told[key] = ""
}

// parseExisting reads the path of a cgroup that somebody else has made. With
// systemd the parts of a slice's name are those around it.
func parseExisting(p string, driver Driver) Name {
	base, slice := strings.CutSuffix(path.Base(p), ".slice")
	if driver != Systemd || !slice {
		return parseName(p)
	}
	var n Name
	for part := range strings.SplitSeq(base, "-") {
		n = append(n, strings.ReplaceAll(part, "_", "-"))
	}
	return n
}
