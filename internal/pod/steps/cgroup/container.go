package cgroup

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/base/cgroupfile"
	"github.com/berth-run/berth/internal/model/pod"
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

// Pod is the cgroup of a pod, and its path below the hierarchy.
func (x Containers) Pod(p *corev1.Pod) (g cgroupfile.Group, path string, err error) {
	name, t, err := x.c.podTree(p)
	if err != nil {
		return g, "", err
	}
	return t.at(name)
}

// Pods is the cgroup that holds all pods, Machine the one that holds everything.
func (x Containers) Pods() (cgroupfile.Group, error) { return x.named(x.c.root.child("kubepods")) }

// Machine is the cgroup of the whole machine.
func (x Containers) Machine() (cgroupfile.Group, error) { return x.named(nil) }

func (x Containers) named(n Name) (cgroupfile.Group, error) {
	t, err := x.c.open()
	if err != nil {
		return cgroupfile.Group{}, err
	}
	g, _, err := t.at(n)
	return g, err
}

// at is a cgroup and its path below the hierarchy.
func (t *tree) at(n Name) (g cgroupfile.Group, path string, err error) {
	path = n.Cgroupfs()
	if t.driver == Systemd && len(n) > 0 {
		if path, err = n.Systemd(); err != nil {
			return g, "", fmt.Errorf("name the slice: %w", err)
		}
	}
	g, err = t.group(n)
	return g, path, err
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
