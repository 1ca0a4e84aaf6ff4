package cgroup

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/base/cgroupfile"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/steps/cgroup/hierarchy"
)

// Containers finds the cgroups of containers. The runtime makes them below the pod's cgroup, with the container's id in
// their name.
type Containers struct{ host *host }

// Containers returns the lookup of containers' cgroups.
func (c *Cgroups) Containers() Containers { return Containers{c.host} }

// Find returns the cgroup of a container, or false if the runtime has not made one in the pod's cgroup.
func (x Containers) Find(p *corev1.Pod, id string) (cgroupfile.Group, bool) {
	name, t, err := x.host.pod(p)
	if err != nil {
		return cgroupfile.Group{}, false
	}
	g, err := t.Group(name)
	if err != nil {
		return cgroupfile.Group{}, false
	}
	return g.Child(id)
}

// Pod returns the cgroup of a pod, and its path below the hierarchy.
func (x Containers) Pod(p *corev1.Pod) (g cgroupfile.Group, path string, err error) {
	name, t, err := x.host.pod(p)
	if err != nil {
		return g, "", err
	}
	return t.At(name)
}

// Pods returns the cgroup of all pods.
func (x Containers) Pods() (cgroupfile.Group, error) { return x.named(x.host.root.Child("kubepods")) }

// Machine returns the cgroup of the whole machine.
func (x Containers) Machine() (cgroupfile.Group, error) { return x.named(nil) }

func (x Containers) named(n hierarchy.Name) (cgroupfile.Group, error) {
	t, err := x.host.open()
	if err != nil {
		return cgroupfile.Group{}, err
	}
	g, _, err := t.At(n)
	return g, err
}

// Pin moves a running container to other CPUs. It returns false if its cgroup was not found.
func (x Containers) Pin(p *corev1.Pod, id, cpus string) (bool, error) {
	g, ok := x.Find(p, id)
	if _, exists := g.Dir("cpuset"); !ok || !exists {
		return false, nil
	}
	if err := cgroupfile.Write(g, "cpuset.cpus", cpus); err != nil {
		return true, fmt.Errorf("pin a container of pod %s: %w", pod.FullName(p), err)
	}
	return true, nil
}

// Pinned returns the CPUs and NUMA nodes of a container.
func (x Containers) Pinned(p *corev1.Pod, id string) (cpus, mems string, ok bool) {
	g, ok := x.Find(p, id)
	if !ok {
		return "", "", false
	}
	values, err := cgroupfile.Read(g, cgroupfile.Values{"cpuset.cpus": "", "cpuset.mems": ""})
	return values["cpuset.cpus"], values["cpuset.mems"], err == nil
}
