package cgroup

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/opencontainers/cgroups"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/model/pod"
)

// The limits of a pod whose containers run are changed around those of its
// containers: Grow first, so that they fit in, Fit last, when none needs more.
// On version 1 the kernel refuses a CPU quota of a child that is above its
// parent's, and the other way round.

// Fits says whether this process has given the pod's cgroup the limits of p.
func (c *Cgroups) Fits(p *corev1.Pod) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.pods[p.UID]
	return h != nil && h.fits != nil && reflect.DeepEqual(*h.fits, ForPod(p, c.cfg.Options))
}

// Grow raises those limits of the pod's cgroup that are below what p needs.
func (c *Cgroups) Grow(p *corev1.Pod) error {
	name, t, err := c.podTree(p)
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
	c.remember(p, l, nil)
	return nil
}

// Fit gives the pod's cgroup the limits of p.
func (c *Cgroups) Fit(p *corev1.Pod) error {
	name, t, err := c.podTree(p)
	if err != nil {
		return err
	}
	l := ForPod(p, c.cfg.Options)
	if err := t.set(name, explicit(l)); err != nil {
		return err
	}
	c.remember(p, l, &l)
	c.notify(pod.QOS(p))
	return nil
}

func (c *Cgroups) podTree(p *corev1.Pod) (Name, *tree, error) {
	name, err := podName(c.root, pod.QOS(p), p.UID)
	if err != nil {
		return nil, nil, err
	}
	t, err := c.open()
	return name, t, err
}

// remember notes what a pod's cgroup was given; fits are the pod's own limits, nil
// while it has others.
func (c *Cgroups) remember(p *corev1.Pod, l Limits, fits *Limits) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.pods[p.UID]
	if h == nil {
		h = &held{}
		c.pods[p.UID] = h
	}
	h.pod, h.written = p, &l
	if fits != nil {
		h.fits = fits
	}
}

// limits reads the quota and the memory that a cgroup has now.
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
	of, per, _ := strings.Cut(strings.TrimSpace(text), " ")
	if quota, err = parseLimit(of); err != nil {
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

// parseLimit reads a limit; version 2 says max for none.
func parseLimit(text string) (int64, error) {
	if text == "max" {
		return -1, nil
	}
	return strconv.ParseInt(text, 10, 64)
}
