package render

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/berth-run/berth/internal/model/pod"
)

func labels(in Input) map[string]string {
	return map[string]string{
		pod.LabelPodName:       in.Pod.Name,
		pod.LabelPodNamespace:  in.Pod.Namespace,
		pod.LabelPodUID:        string(in.Pod.UID),
		pod.LabelContainerName: in.Container.Name,
	}
}

// annotations returns what an agent that has never seen the pod's spec needs to judge the container and to stop it
// properly.
func annotations(in Input) (map[string]string, error) {
	c := in.Container
	a := map[string]string{
		pod.AnnotationHash:                     pod.ContainerHash(c.Container),
		pod.AnnotationRestartCount:             strconv.Itoa(in.RestartCount),
		pod.AnnotationTerminationMessagePath:   c.TerminationMessagePath,
		pod.AnnotationTerminationMessagePolicy: string(c.TerminationMessagePolicy),
	}
	if in.Backoff > 0 {
		a[pod.AnnotationBackoff] = in.Backoff.String()
	}
	if s := in.Pod.DeletionGracePeriodSeconds; s != nil {
		a[pod.AnnotationDeletionGrace] = strconv.FormatInt(*s, 10)
	}
	if s := in.Pod.Spec.TerminationGracePeriodSeconds; s != nil {
		a[pod.AnnotationTerminationGrace] = strconv.FormatInt(*s, 10)
	}
	if c.Lifecycle != nil && c.Lifecycle.PreStop != nil {
		raw, err := json.Marshal(c.Lifecycle.PreStop)
		if err != nil {
			return nil, fmt.Errorf("write preStop handler of container %q: %w", c.Name, err)
		}
		a[pod.AnnotationPreStopHandler] = string(raw)
	}
	if len(c.Ports) > 0 {
		raw, err := json.Marshal(c.Ports)
		if err != nil {
			return nil, fmt.Errorf("write ports of container %q: %w", c.Name, err)
		}
		a[pod.AnnotationPorts] = string(raw)
	}
	return a, nil
}
