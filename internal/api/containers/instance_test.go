package containers

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestNewest(t *testing.T) {
	waits := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}
	runs := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ContainerID: "a"}}
	type result struct {
		instance int
		ok       bool
	}
	for name, test := range map[string]struct {
		status corev1.ContainerStatus
		want   result
	}{
		"not started": {corev1.ContainerStatus{State: waits}, result{}},
		"runs":        {corev1.ContainerStatus{State: runs, RestartCount: 2}, result{2, true}},
		"has ended":   {corev1.ContainerStatus{State: ended, RestartCount: 1}, result{1, true}},
		"will restart": {corev1.ContainerStatus{State: waits, LastTerminationState: ended, RestartCount: 1},
			result{1, true}},
		"is created": {corev1.ContainerStatus{State: waits, LastTerminationState: ended, RestartCount: 1,
			ContainerID: "b"}, result{0, true}},
	} {
		n, ok := Newest(test.status)
		if got := (result{n, ok}); got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}
