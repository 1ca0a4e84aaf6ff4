package pod

import (
	"encoding/json"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Orphan reconstructs the pod of a sandbox or containers that no known pod owns, from what is written on them. It is
// enough to end the pod with its own grace and preStop handlers.
func Orphan(o *Observed) *Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: o.Name, Namespace: o.Namespace, UID: o.UID}}
	for _, s := range o.Sandboxes {
		p.Spec.HostNetwork = p.Spec.HostNetwork || s.HostNetwork
	}
	for _, c := range o.Containers {
		if slices.ContainsFunc(p.Spec.Containers, func(k corev1.Container) bool { return k.Name == c.Name }) {
			continue // an earlier instance
		}
		k := corev1.Container{Name: c.Name, Image: c.Image}
		if handler := (&corev1.LifecycleHandler{}); c.PreStop != "" &&
			json.Unmarshal([]byte(c.PreStop), handler) == nil {
			k.Lifecycle = &corev1.Lifecycle{PreStop: handler}
		}
		if c.TerminationGrace != nil {
			p.Spec.TerminationGracePeriodSeconds = c.TerminationGrace
		}
		p.Spec.Containers = append(p.Spec.Containers, k)
	}
	return &Pod{Pod: p, Origin: "the runtime", Seen: firstSeen(o)}
}

func firstSeen(o *Observed) time.Time {
	if n := len(o.Sandboxes); n > 0 {
		return o.Sandboxes[n-1].CreatedAt
	}
	return o.At
}
