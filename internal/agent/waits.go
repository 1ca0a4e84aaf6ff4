package agent

import (
	"errors"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/object"
	"github.com/berth-run/berth/internal/reason"
	"github.com/berth-run/berth/internal/worker"
)

// awaited says which objects a pod waits for before any of its containers can
// start, in the words for a container that waits.
func awaited(p *corev1.Pod, s worker.State) (why, message string, ok bool) {
	var names []string
	var lacking string
	for task, err := range s.Failures {
		if !strings.HasPrefix(task, "step/") {
			continue
		}
		keys, _ := object.Waits(err)
		for _, key := range keys {
			names = append(names, key.String())
		}
		if l, ok := errors.AsType[*object.Lacking](err); ok {
			lacking = ": " + l.Error()
		}
	}
	slices.Sort(names)
	why = reason.ContainerCreating
	if len(p.Spec.InitContainers) > 0 {
		why = reason.PodInitializing
	}
	return why, "waiting for " + strings.Join(slices.Compact(names), ", ") + lacking, len(names) > 0
}
