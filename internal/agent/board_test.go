package agent

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestFailures(t *testing.T) {
	exited := func(name string, code int32) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: name,
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}}
	}
	got := failures(corev1.PodStatus{
		InitContainerStatuses: []corev1.ContainerStatus{exited("init", 0)},
		ContainerStatuses:     []corev1.ContainerStatus{exited("a", 7), {Name: "b"}, exited("c", 137)},
	})
	if want := "container a ended with exit code 7; container c ended with exit code 137"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
