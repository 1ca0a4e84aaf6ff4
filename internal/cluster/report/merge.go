package report

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/podstatus"
)

// times holds the transition time of each condition when this process first saw the condition.
type times map[corev1.PodConditionType]metav1.Time

// with returns t with the times of the conditions that t does not have yet. It does not change t.
func (t times) with(s corev1.PodStatus) times {
	more := t
	for _, c := range s.Conditions {
		if _, known := t[c.Type]; known {
			continue
		}
		if len(more) == len(t) {
			more = maps.Clone(t)
		}
		if more == nil {
			more = times{}
		}
		more[c.Type] = c.LastTransitionTime
	}
	return more
}

// merge returns the wanted status of a pod in the API: our fields from ours, all others from the API. It changes
// neither. first holds the times of our conditions before this process saw any of them change.
func merge(api *corev1.Pod, ours corev1.PodStatus, first times) corev1.PodStatus {
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
	if !mirror(api) && pod.Ended(theirs.Phase) { // a terminal phase is final, whoever has set it
		s.Phase, s.Reason, s.Message = theirs.Phase, theirs.Reason, theirs.Message
	}
	s.Conditions = mergeConditions(theirs.Conditions, ours.Conditions, first,
		!pod.Ended(theirs.Phase) && pod.Ended(s.Phase))
	if pod.Ended(s.Phase) {
		unready(s.Conditions, s.Phase)
	}
	s.InitContainerStatuses = withoutCreated(theirs.InitContainerStatuses, ours.InitContainerStatuses)
	s.ContainerStatuses = withoutCreated(theirs.ContainerStatuses, ours.ContainerStatuses)
	s.EphemeralContainerStatuses = withoutCreated(theirs.EphemeralContainerStatuses, ours.EphemeralContainerStatuses)
	return s
}

// withoutCreated keeps the API's status of a container that waits for its first start, if only the runtime's creation
// of it is new. The container runs a moment later, and users see no difference.
func withoutCreated(theirs, ours []corev1.ContainerStatus) []corev1.ContainerStatus {
	var all []corev1.ContainerStatus
	for i, now := range ours {
		at := slices.IndexFunc(theirs, func(c corev1.ContainerStatus) bool { return c.Name == now.Name })
		if at < 0 || !justCreated(theirs[at], now) {
			continue
		}
		if all == nil {
			all = slices.Clone(ours)
		}
		all[i] = theirs[at]
	}
	if all == nil {
		return ours
	}
	return all
}

func justCreated(was, now corev1.ContainerStatus) bool {
	before, wait := was.State.Waiting, now.State.Waiting
	return before != nil && wait != nil && was.ContainerID == "" && now.ContainerID != "" &&
		(before.Reason == wait.Reason || before.Reason == reason.PodInitializing) && before.Message == wait.Message &&
		wait.Reason == reason.ContainerCreating && was.RestartCount == now.RestartCount &&
		was.LastTerminationState == (corev1.ContainerState{}) && now.LastTerminationState == (corev1.ContainerState{})
}

// mergeConditions keeps the API's order, so that equal sets are equal lists. The result shares no memory with its
// arguments.
func mergeConditions(theirs, ours []corev1.PodCondition, first times, ending bool) []corev1.PodCondition {
	merged := make([]corev1.PodCondition, 0, len(theirs)+len(ours))
	for _, was := range theirs {
		now := condition(ours, was.Type)
		switch {
		case podstatus.Foreign(was.Type), was.Type == corev1.DisruptionTarget && (now == nil || !ending),
			was.Type == corev1.PodScheduled && (now == nil || was.Status == corev1.ConditionTrue):
			merged = append(merged, was)
		case now != nil:
			merged = append(merged, follow(was, *now, first))
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

// follow returns our condition after the API's condition of the same type. The transition time belongs to a change of
// the status. If both have the same status, the API's time stays, unless this process has seen the condition change
// and change back since.
func follow(was, now corev1.PodCondition, first times) corev1.PodCondition {
	now.LastProbeTime = was.LastProbeTime
	began, known := first[now.Type]
	turned := known && !now.LastTransitionTime.Equal(&began) &&
		now.LastTransitionTime.After(was.LastTransitionTime.Time)
	if was.Status == now.Status && !was.LastTransitionTime.IsZero() && !turned {
		now.LastTransitionTime = was.LastTransitionTime
	}
	return now
}

// unready sets Ready and ContainersReady to false on a pod that has ended, whose conditions may be older.
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

func mirror(p *corev1.Pod) bool {
	return metav1.HasAnnotation(p.ObjectMeta, corev1.MirrorPodAnnotationKey)
}
