package podstatus

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/model/pod"
)

// Foreign says whether users and controllers may set a condition.
func Foreign(t corev1.PodConditionType) bool { return !owned(t) && t != corev1.DisruptionTarget }

// foreign keeps the conditions that others have set: those that the pod came with, and for a pod that the API server
// does not have, those set since over the local API.
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
