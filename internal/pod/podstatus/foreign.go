package podstatus

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/model/pod"
)

// Foreign says whether somebody else than the agent may set a condition.
func Foreign(t corev1.PodConditionType) bool { return !owned(t) && t != corev1.DisruptionTarget }

// foreign takes over the conditions that others have set: those that the pod came
// with, and those that were set since with SetCondition.
func (c *computation) foreign() {
	for _, given := range c.Pod.Status.Conditions {
		if !owned(given.Type) {
			c.s.Conditions = append(c.s.Conditions, given)
		}
	}
	if c.Pod.Source == pod.SourceAPI {
		return
	}
	for _, set := range c.old.Conditions {
		if given := find(c.s.Conditions, set.Type); Foreign(set.Type) &&
			(given == nil || set.LastTransitionTime.After(given.LastTransitionTime.Time)) {
			c.put(set)
		}
	}
}

// SetCondition sets a condition of a pod, which is Foreign, for as long as the pod
// has a status. The next Update takes it in.
func (s *Statuses) SetCondition(uid types.UID, c corev1.PodCondition) {
	e := s.entry(uid)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.given = append(e.given, corev1.PodCondition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message})
}
