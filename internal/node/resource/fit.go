package resource

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/node/resource/cpu"
	"github.com/berth-run/berth/internal/node/resource/memory"
)

// pool describes the CPUs of the node, given the holdings of pods.
func (n Node) pool(h Held) cpu.Pool {
	return cpu.Pool{Machine: n.Machine, Reserved: n.Policy.ReservedCPUs, Held: h.CPUs(), Options: n.Policy.CPU}
}

// state describes the memory of the node, given the holdings of pods.
func (n Node) state(h Held) memory.State {
	if !n.Policy.Memory {
		return memory.State{}
	}
	s := memory.NewState(n.Machine, n.Policy.ReservedMemory)
	for _, a := range h {
		s = s.With(a.Memory())
	}
	return s
}

// Shared are the CPUs that containers without exclusive CPUs run on. It is empty if the policy allocates no exclusive
// CPUs; then containers run anywhere. With strict-cpu-reservation, pods may hold every CPU that is not reserved. The
// other containers then run on the reserved CPUs, because they must not disturb exclusive ones.
func (n Node) Shared(h Held) cpuset.CPUSet {
	if !n.Policy.CPUs {
		return cpuset.New()
	}
	if shared := n.pool(h).Shared(); !shared.IsEmpty() {
		return shared
	}
	return n.Policy.ReservedCPUs
}

// fitting returns the part of an allocation that is possible on this machine beside the holdings of other pods. The
// error names the impossible parts and the reasons.
func (n Node) fitting(others Held, a Allocation) (Allocation, error) {
	if a.IsEmpty() {
		return a, nil
	}
	a = a.Clone()
	errs := []error{n.fitCPUs(others, a.CPUs()), n.fitMemory(others, a.Memory())}
	held := others.Devices()
	each := func(f func(*Holding)) {
		f(&a.Pod)
		for name, g := range a.Containers {
			f(&g)
			if a.Containers[name] = g; g.IsEmpty() {
				delete(a.Containers, name)
			}
		}
	}
	each(func(g *Holding) {
		if errs[0] != nil {
			g.CPUs = cpuset.New()
		}
		if errs[1] != nil {
			g.Memory = nil
		}
		for name, ids := range g.Devices {
			if slices.ContainsFunc(ids, held[name].Has) {
				errs = append(errs, fmt.Errorf("devices %v of %s: some are held by another pod", ids, name))
				delete(g.Devices, name)
			}
		}
	})
	return a, errors.Join(errs...)
}

func (n Node) fitCPUs(others Held, own cpuset.CPUSet) error {
	if own.IsEmpty() {
		return nil
	}
	if !n.Policy.CPUs {
		return fmt.Errorf("CPUs %s: the policy allocates none", own)
	}
	if offline := own.Difference(n.Machine.Online()); !offline.IsEmpty() {
		return fmt.Errorf("CPUs %s: %s are not online", own, offline)
	}
	if reserved := own.Intersection(n.Policy.ReservedCPUs); !reserved.IsEmpty() {
		return fmt.Errorf("CPUs %s: %s are reserved", own, reserved)
	}
	if conflict := own.Intersection(others.CPUs()); !conflict.IsEmpty() {
		return fmt.Errorf("CPUs %s: %s are held by another pod", own, conflict)
	}
	return nil
}

func (n Node) fitMemory(others Held, own []memory.Block) error {
	switch {
	case len(own) == 0:
		return nil
	case !n.Policy.Memory:
		return errors.New("memory of NUMA nodes: the policy allocates none")
	}
	return n.state(others).Check(own)
}

// covers reports whether own has everything that the pod's containers are due, so that no new decision is needed.
// lasting reports the same of the app containers and sidecars alone: if it is true, the pod continues even if init
// containers cannot get all that they are due. The memory of init containers is not checked, because it is freed when
// they end.
func (n Node) covers(p *corev1.Pod, own Allocation) (all, lasting bool) {
	if own.IsEmpty() {
		return false, false
	}
	d := decision{node: n, pod: p, own: own}
	if n.usesBubble(p) {
		due := map[corev1.ResourceName]int64{}
		for _, b := range own.Pod.Memory {
			due[b.Resource] = b.Size
		}
		cpus, sizes := 0, map[corev1.ResourceName]int64(nil)
		if n.Policy.CPUs {
			cpus = cpu.ExclusivePod(p)
		}
		if n.Policy.Memory {
			sizes = memory.ExclusivePod(p)
		}
		all = own.Pod.CPUs.Size() == cpus && maps.Equal(due, sizes)
		return all, all
	}
	all = true
	for _, c := range pod.Containers(p) {
		if c.Kind == pod.Ephemeral {
			continue
		}
		w := d.want(c)
		left := w.without(d.keep(c, w))
		switch lacks := left.cpus > 0 || len(left.devices) > 0; {
		case c.Kind == pod.Init:
			all = all && !lacks
		case lacks || len(left.memory) > 0:
			return false, false
		}
	}
	return all, true
}
