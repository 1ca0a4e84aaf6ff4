package allocation

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/pod"
)

// Lifecycle frees what init containers held when the next container starts: those
// after it have taken over at admission what they need of it.
type Lifecycle struct{ allocations *Allocations }

// Lifecycle hangs on the start of each container.
func (s *Allocations) Lifecycle() Lifecycle { return Lifecycle{s} }

// PreCreate does nothing.
func (Lifecycle) PreCreate(context.Context, *corev1.Pod, pod.Container, *runtimeapi.ContainerConfig) error {
	return nil
}

// PreStart frees what the init containers before this one held.
func (l Lifecycle) PreStart(_ context.Context, p *corev1.Pod, c pod.Container, _ string) error {
	if a, _ := l.allocations.Get(p.UID); len(a.Containers) == 0 {
		return nil
	}
	for _, before := range pod.Containers(p) {
		if before.Name == c.Name {
			break
		}
		if before.Kind != pod.Init {
			continue
		}
		if err := l.allocations.ReleaseContainer(p.UID, before.Name); err != nil {
			return err
		}
	}
	return nil
}

// PreStop does nothing.
func (Lifecycle) PreStop(context.Context, string) error { return nil }

// PostStop does nothing: a container that restarts has what it had.
func (Lifecycle) PostStop(context.Context, string) error { return nil }
