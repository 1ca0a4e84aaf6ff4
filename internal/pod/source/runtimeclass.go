package source

import (
	nodev1 "k8s.io/api/node/v1"

	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/pod"
)

// classed is a pod before and after the fields of its RuntimeClass were added.
type classed struct {
	from, made *pod.Pod
	class      *nodev1.RuntimeClass
}

// classify adds the fields of its RuntimeClass to a pod, as the API server does at creation. Once admitted, a pod keeps
// these fields while it stays the same, even if the class changes or is deleted. Pods of the API server have the fields
// already. The caller holds m.mu.
func (m *merge) classify(p *pod.Pod) *pod.Pod {
	if p.Spec.RuntimeClassName == nil || p.Source == pod.SourceAPI {
		delete(m.classes, p.UID)
		return p
	}
	c := m.classes[p.UID]
	class := c.class
	if class == nil || !m.node.Working(p.UID) {
		row, _ := m.objects.Get(object.Key{Kind: object.RuntimeClass, Name: *p.Spec.RuntimeClassName})
		class, _ = row.(*nodev1.RuntimeClass)
	}
	if c.from != p || c.class != class {
		c = classed{from: p, made: withClass(p, class), class: class}
	}
	m.classes[p.UID] = c
	return c.made
}

// withClass returns the pod with the fields of its RuntimeClass.
func withClass(p *pod.Pod, class *nodev1.RuntimeClass) *pod.Pod {
	if class == nil || class.Overhead == nil && class.Scheduling == nil {
		return p
	}
	c := *p
	c.Pod = p.DeepCopy()
	object.ApplyClass(&c.Spec, class)
	return &c
}
