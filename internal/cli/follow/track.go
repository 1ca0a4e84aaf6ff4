package follow

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// track is the state of one followed pod.
type track struct {
	key      types.NamespacedName
	uid      types.UID
	pod      *corev1.Pod // last seen state
	settled  bool        // its start is over: it was ready, or has ended
	shown    bool        // its timeline has been drawn
	complete bool        // it runs, and Run needs nothing else: its end is not in the exit status
	deleting bool
	gone     bool
	logs     map[string]*logTrack // by container
}

// ending reports whether the pod is being stopped.
func (t *track) ending() bool { return t.deleting || t.pod != nil && t.pod.DeletionTimestamp != nil }

// tracks are the pods of one Run, in the order of Options.Pods.
type tracks []*track

// find returns the pod with this UID, or nil.
func (ts tracks) find(uid types.UID) *track {
	for _, t := range ts {
		if t.uid == uid {
			return t
		}
	}
	return nil
}

func (ts tracks) all(is func(*track) bool) bool {
	for _, t := range ts {
		if !is(t) {
			return false
		}
	}
	return true
}

// complete notes that the pods which run have done what Run waited for.
func (ts tracks) complete() {
	for _, t := range ts {
		t.complete = !t.gone && t.pod != nil && !ended(t.pod)
	}
}

// exitStatus returns the exit status for the pods that had to end by themselves, or 0 if none had to.
func (ts tracks) exitStatus() int {
	var last []*corev1.Pod
	for _, t := range ts {
		if t.pod != nil && !t.complete {
			last = append(last, t.pod)
		}
	}
	if len(last) == 0 && ts.all(func(t *track) bool { return t.complete }) {
		return 0
	}
	return exitStatus(last)
}

// name returns a pod's name. It includes the namespace if the pods are in several.
func (ts tracks) name(t *track) string {
	for _, other := range ts {
		if other.key.Namespace != t.key.Namespace {
			return t.key.String()
		}
	}
	return t.key.Name
}
