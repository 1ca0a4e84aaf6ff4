package source

import (
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/pod"
)

// classed is a pod with what its RuntimeClass adds to it.
type classed struct {
	from, made *pod.Pod
	class      *nodev1.RuntimeClass
}

// classify adds to the pods what their RuntimeClass says, as the API server does
// when a pod is created: what a pod had when the node took it on it keeps for as
// long as it is the same, whatever becomes of the class. Pods of the API have been
// given that there. m.mu is held.
func (m *merge) classify(pods []*pod.Pod) {
	was := m.classes
	m.classes = map[types.UID]classed{}
	for i, p := range pods {
		if p.Spec.RuntimeClassName == nil || p.Source == pod.SourceAPI {
			continue
		}
		c := was[p.UID]
		class := c.class
		if class == nil || !m.taken(p.UID) {
			row, _ := m.objects.Get(object.Key{Kind: object.RuntimeClass, Name: *p.Spec.RuntimeClassName})
			class, _ = row.(*nodev1.RuntimeClass)
		}
		if c.from != p || c.class != class {
			c = classed{from: p, made: withClass(p, class), class: class}
		}
		m.classes[p.UID], pods[i] = c, c.made
	}
}

// withClass is a pod with what its RuntimeClass adds to it.
func withClass(p *pod.Pod, class *nodev1.RuntimeClass) *pod.Pod {
	if class == nil || class.Overhead == nil && class.Scheduling == nil {
		return p
	}
	c := *p
	c.Pod = p.DeepCopy()
	object.ApplyClass(&c.Spec, class)
	return &c
}
