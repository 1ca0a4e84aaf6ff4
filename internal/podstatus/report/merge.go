package report

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-run/berth/internal/podstatus"
)

// merge gives the status that a pod of the API should have: ours in all that is the
// agent's, the API's in all that is not. Neither is changed.
func merge(api *corev1.Pod, ours corev1.PodStatus) corev1.PodStatus {
	theirs := api.Status
	s := ours
	s.NominatedNodeName = theirs.NominatedNodeName
	s.ResourceClaimStatuses = theirs.ResourceClaimStatuses
	s.ExtendedResourceClaimStatus = theirs.ExtendedResourceClaimStatus
	s.NodeAllocatableResourceClaimStatuses = theirs.NodeAllocatableResourceClaimStatuses
	s.Resize = theirs.Resize
	// Neither changes in a pod's life, and the API server refuses another class.
	s.QOSClass = cmp.Or(theirs.QOSClass, ours.QOSClass)
	if !theirs.StartTime.IsZero() {
		s.StartTime = theirs.StartTime
	}
	s.ObservedGeneration = cmp.Or(ours.ObservedGeneration, theirs.ObservedGeneration)
	if !mirror(api) && terminal(theirs.Phase) { // a phase goes one way, whoever has set it
		s.Phase, s.Reason, s.Message = theirs.Phase, theirs.Reason, theirs.Message
	}
	s.Conditions = mergeConditions(theirs.Conditions, ours.Conditions, !terminal(theirs.Phase) && terminal(s.Phase))
	if terminal(s.Phase) {
		unready(s.Conditions, s.Phase)
	}
	return s
}

// mergeConditions keeps the API's order, so that equal sets are equal lists. The
// result has storage of its own.
func mergeConditions(theirs, ours []corev1.PodCondition, ending bool) []corev1.PodCondition {
	merged := make([]corev1.PodCondition, 0, len(theirs)+len(ours))
	for _, was := range theirs {
		now := condition(ours, was.Type)
		switch {
		case podstatus.Foreign(was.Type), was.Type == corev1.DisruptionTarget && (now == nil || !ending),
			was.Type == corev1.PodScheduled && (now == nil || was.Status == corev1.ConditionTrue):
			merged = append(merged, was)
		case now != nil:
			merged = append(merged, follow(was, *now))
		}
	}
	for _, now := range ours {
		foreign := podstatus.Foreign(now.Type) || now.Type == corev1.DisruptionTarget && !ending
		if !foreign && condition(merged, now.Type) == nil {
			merged = append(merged, now)
		}
	}
	return merged
}

// follow is a condition after another of its type: times belong to a change of its
// status, and of the API's two the older is the truth.
func follow(was, now corev1.PodCondition) corev1.PodCondition {
	now.LastProbeTime = was.LastProbeTime
	if was.Status == now.Status && !was.LastTransitionTime.IsZero() {
		now.LastTransitionTime = was.LastTransitionTime
	}
	return now
}

// unready makes a pod that has ended show so, which its conditions may not do yet.
func unready(all []corev1.PodCondition, phase corev1.PodPhase) {
	why := "PodFailed"
	if phase == corev1.PodSucceeded {
		why = "PodCompleted"
	}
	for i := range all {
		c := &all[i]
		if (c.Type == corev1.PodReady || c.Type == corev1.ContainersReady) && c.Status == corev1.ConditionTrue {
			c.Status, c.Reason, c.Message = corev1.ConditionFalse, why, ""
		}
	}
}

func condition(all []corev1.PodCondition, t corev1.PodConditionType) *corev1.PodCondition {
	if i := slices.IndexFunc(all, func(c corev1.PodCondition) bool { return c.Type == t }); i >= 0 {
		return &all[i]
	}
	return nil
}

func terminal(p corev1.PodPhase) bool { return p == corev1.PodSucceeded || p == corev1.PodFailed }

func mirror(p *corev1.Pod) bool {
	return metav1.HasAnnotation(p.ObjectMeta, corev1.MirrorPodAnnotationKey)
}
