package gate

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/pod"
	"github.com/berth-run/berth/internal/timeline"
)

func TestBegins(t *testing.T) {
	up := []pod.SandboxStatus{{ID: "s", Ready: true}}
	gone := []pod.SandboxStatus{{ID: "s"}}
	runs := []pod.ContainerStatus{{ID: "c", State: pod.StateRunning}}
	over := []pod.ContainerStatus{{ID: "c", State: pod.StateExited}}
	ready, interrupted := timeline.Timeline{End: time.Unix(1, 0)}, timeline.Timeline{Interrupted: true}
	for name, c := range map[string]struct {
		observed *pod.Observed
		phase    corev1.PodPhase
		last     *timeline.Timeline
		want     bool
	}{
		"new":                                   {nil, "", nil, true},
		"new to the runtime":                    {&pod.Observed{}, corev1.PodPending, nil, true},
		"runs":                                  {&pod.Observed{Sandboxes: up, Containers: runs}, corev1.PodRunning, &ready, false},
		"runs, its start is not kept":           {&pod.Observed{Sandboxes: up, Containers: runs}, corev1.PodRunning, nil, false},
		"crashes":                               {&pod.Observed{Sandboxes: up, Containers: over}, corev1.PodRunning, &ready, false},
		"its agent ended while it came up":      {&pod.Observed{Sandboxes: up, Containers: runs}, corev1.PodRunning, &interrupted, true},
		"the same, before its start was kept":   {&pod.Observed{Sandboxes: up}, corev1.PodPending, nil, true},
		"after a reboot":                        {&pod.Observed{Sandboxes: gone, Containers: over}, corev1.PodRunning, &ready, true},
		"succeeded, its sandbox has been ended": {&pod.Observed{Sandboxes: gone, Containers: over}, corev1.PodSucceeded, &ready, false},
		"succeeded, and nothing is left of it":  {nil, corev1.PodSucceeded, nil, false},
	} {
		var last timeline.Timeline
		if c.last != nil {
			last = *c.last
		}
		if got := begins(c.observed, corev1.PodStatus{Phase: c.phase}, last, c.last != nil); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
