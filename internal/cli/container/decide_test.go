package container

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestOverWhenAllPodsHaveEndedByThemselves(t *testing.T) {
	with := func(phase corev1.PodPhase) *corev1.Pod { return &corev1.Pod{Status: corev1.PodStatus{Phase: phase}} }
	deleted := with(corev1.PodFailed)
	deleted.DeletionTimestamp = &metav1.Time{}
	for name, test := range map[string]struct {
		pods []*corev1.Pod
		want bool
	}{
		"no pods":                   {nil, false},
		"one runs":                  {[]*corev1.Pod{with(corev1.PodSucceeded), with(corev1.PodRunning)}, false},
		"all have ended":            {[]*corev1.Pod{with(corev1.PodSucceeded), with(corev1.PodFailed)}, true},
		"the last is being deleted": {[]*corev1.Pod{deleted}, false},
	} {
		if got := over(test.pods); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestStartedSince(t *testing.T) {
	at := func(second int) metav1.Time { return metav1.Unix(int64(second), 0) }
	began := time.Unix(100, 500)
	runs := func(second int) corev1.ContainerState {
		return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(second)}}
	}
	ended := func(second int) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{StartedAt: at(second)}}
	}
	for name, test := range map[string]struct {
		state corev1.ContainerState
		want  bool
	}{
		"not started":         {corev1.ContainerState{}, false},
		"runs since before":   {runs(99), false},
		"in the same second":  {runs(100), true},
		"has ended meanwhile": {ended(101), true},
		"ended before":        {ended(1), false},
	} {
		if got := startedSince(corev1.ContainerStatus{State: test.state}, began); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
