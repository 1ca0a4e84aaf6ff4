package allocation

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/pod"
)

// Lifecycle frees the memory of init containers when the next container starts: those
// after it have taken over at admission what they need of it. CPUs and devices are
// the pod's until it is gone: init containers run again in another sandbox.
type Lifecycle struct{ allocations *Allocations }

// Lifecycle hangs on the start of each container.
func (s *Allocations) Lifecycle() Lifecycle { return Lifecycle{s} }

// PreCreate does nothing.
func (Lifecycle) PreCreate(context.Context, *corev1.Pod, pod.Container, *runtimeapi.ContainerConfig) error {
	return nil
}

// PreStart frees the memory of the init containers before this one.
func (l Lifecycle) PreStart(_ context.Context, p *corev1.Pod, c pod.Container, _ string) error {
	a, _ := l.allocations.Get(p.UID)
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
		if err := l.allocations.ReleaseMemory(p.UID, before.Name); err != nil {
			return err
		}
	}
	return nil
}

// PreStop does nothing.
func (Lifecycle) PreStop(context.Context, string) error { return nil }

// PostStop does nothing: a container that restarts has what it had.
func (Lifecycle) PostStop(context.Context, string) error { return nil }
