package cgroup

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/opencontainers/cgroups"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/model/pod"
)

// A resize of a running pod changes the limits of its cgroup around those of its containers. Grow comes first, so
// that the containers' new limits fit in. Fit comes last, when no container needs more. On cgroup v1 the kernel
// refuses a child's CPU quota above its parent's, and a parent's below its child's.

// Fits reports whether this process has given the pod's cgroup the limits of p.
func (c *Cgroups) Fits(p *corev1.Pod) bool { return c.pods.fit(p.UID, ForPod(p, c.cfg.Options)) }

// Grow raises the limits of the pod's cgroup that are below what p needs.
func (c *Cgroups) Grow(p *corev1.Pod) error {
	name, t, err := c.host.pod(p)
	if err != nil {
		return err
	}
	have, err := t.limits(name)
	if err != nil {
		return fmt.Errorf("read limits of cgroup %s: %w", name.Cgroupfs(), err)
	}
	l := grown(have, ForPod(p, c.cfg.Options))
	if err := t.set(name, l); err != nil {
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
	if err := t.set(name, explicit(l)); err != nil {
		return err
	}
	c.pods.put(p, l, &l)
	c.notify(pod.QOS(p))
	return nil
}

// limits reads the current quota and memory limit of a cgroup.
func (t *tree) limits(n Name) (Limits, error) {
	paths, err := t.paths(n)
	if err != nil {
		return Limits{}, err
	}
	l := Limits{Quota: -1, Memory: -1}
	if t.controllers["cpu"] {
		if l.Quota, l.Period, err = t.quota(paths); err != nil {
			return l, err
		}
	}
	if t.controllers["memory"] {
		dir, file := paths["memory"], "memory.limit_in_bytes"
		if t.unified {
			dir, file = paths[""], "memory.max"
		}
		if l.Memory, err = number(dir, file); err != nil {
			return l, err
		}
	}
	return l, nil
}

func (t *tree) quota(paths map[string]string) (quota int64, period uint64, err error) {
	if !t.unified {
		if quota, err = number(paths["cpu"], "cpu.cfs_quota_us"); err != nil {
			return 0, 0, err
		}
		p, err := number(paths["cpu"], "cpu.cfs_period_us")
		return quota, uint64(p), err
	}
	text, err := cgroups.ReadFile(paths[""], "cpu.max")
	if err != nil {
		return 0, 0, err
	}
	amount, per, _ := strings.Cut(strings.TrimSpace(text), " ")
	if quota, err = parseLimit(amount); err != nil {
		return 0, 0, err
	}
	period, err = strconv.ParseUint(per, 10, 64)
	return quota, period, err
}

func number(dir, file string) (int64, error) {
	text, err := cgroups.ReadFile(dir, file)
	if err != nil {
		return 0, err
	}
	return parseLimit(strings.TrimSpace(text))
}

// parseLimit reads a limit. On cgroup v2, "max" means none.
func parseLimit(text string) (int64, error) {
	if text == "max" {
		return -1, nil
	}
	return strconv.ParseInt(text, 10, 64)
}
