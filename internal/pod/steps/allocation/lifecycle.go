package allocation

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/model/pod"
)

// PreStart frees the memory of the init containers before this container. Admission has allotted the reusable part of
// that memory to later containers already. CPUs and devices stay with the pod until its end, because init containers
// run again in a new sandbox.
func (s *Allocations) PreStart(_ context.Context, p *corev1.Pod, c pod.Container, _ string) error {
	a, _ := s.Get(p.UID)
	if len(a.Containers) == 0 {
		return nil
	}
	for _, before := range pod.Containers(p) {
		if before.Name == c.Name {
			break
		}
		if before.Kind != pod.Init || len(a.Containers[before.Name].Memory) == 0 {
			continue
		}
		if err := s.ReleaseMemory(p.UID, before.Name); err != nil {
			return err
		}
	}
	return nil
}
