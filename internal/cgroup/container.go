package cgroup

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/cgroupfile"
	"github.com/berth-run/berth/internal/pod"
)

// Containers are the cgroups of containers, which are the runtime's. They are
// found below that of their pod by the container's id.
type Containers struct{ c *Cgroups }

// Containers returns them.
func (c *Cgroups) Containers() Containers { return Containers{c} }

// Find finds the cgroup of a container. It says false when the runtime has
// made none there, or not yet.
func (x Containers) Find(p *corev1.Pod, id string) (cgroupfile.Group, bool) {
	name, t, err := x.c.podTree(p)
	if err != nil {
		return cgroupfile.Group{}, false
	}
	g, err := t.group(name)
	if err != nil {
		return cgroupfile.Group{}, false
	}
	return g.Child(id)
}

func (t *tree) group(n Name) (cgroupfile.Group, error) {
	paths, err := t.paths(n)
	return cgroupfile.Group{Unified: t.unified, Dirs: paths}, err
}

// Pin moves a container that runs to other CPUs. It says false when its cgroup is
// not known here.
func (x Containers) Pin(p *corev1.Pod, id, cpus string) (bool, error) {
	g, ok := x.Find(p, id)
	if _, has := g.Dir("cpuset"); !ok || !has {
		return false, nil
	}
	if err := cgroupfile.Write(g, "cpuset.cpus", cpus); err != nil {
		return true, fmt.Errorf("pin a container of pod %s: %w", pod.FullName(p), err)
	}
	return true, nil
}

// Pinned reads the CPUs and NUMA nodes of a container.
func (x Containers) Pinned(p *corev1.Pod, id string) (cpus, mems string, ok bool) {
	g, ok := x.Find(p, id)
	if !ok {
		return "", "", false
	}
	have, err := cgroupfile.Read(g, cgroupfile.Values{"cpuset.cpus": "", "cpuset.mems": ""})
	return have["cpuset.cpus"], have["cpuset.mems"], err == nil
}
