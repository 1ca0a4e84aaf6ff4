package cgroup

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/model/pod"
)

// A resize of a running pod changes the limits of its cgroup before and after the limits of its containers. Grow comes
// first, so that the containers' new limits fit in. Fit comes last, when no container needs more. On cgroup v1 the
// kernel refuses a child's CPU quota above its parent's, and a parent's below its child's.

// Fits reports whether this process has given the pod's cgroup the limits of p.
func (c *Cgroups) Fits(p *corev1.Pod) bool { return c.pods.fit(p.UID, ForPod(p, c.cfg.Options)) }

// Grow raises the limits of the pod's cgroup that are too low for p.
func (c *Cgroups) Grow(p *corev1.Pod) error {
	name, t, err := c.host.pod(p)
	if err != nil {
		return err
	}
	have, err := t.Limits(name)
	if err != nil {
		return fmt.Errorf("read limits of cgroup %s: %w", name.Cgroupfs(), err)
	}
	l := grown(have, ForPod(p, c.cfg.Options))
	if err := t.Set(name, l); err != nil {
		return err
	}
	c.pods.put(p, l, nil)
	return nil
}

// Fit gives the pod's cgroup the limits of p.
func (c *Cgroups) Fit(p *corev1.Pod) error {
	name, t, err := c.host.pod(p)
	if err != nil {
		return err
	}
	l := ForPod(p, c.cfg.Options)
	if err := t.Set(name, explicit(l)); err != nil {
		return err
	}
	c.pods.put(p, l, &l)
	c.notify(pod.QOS(p))
	return nil
}
