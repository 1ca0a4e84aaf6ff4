package resize

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/pod"
)

// Lifecycle notes what containers are made with. It takes its place in the
// internal lifecycle of containers.
type Lifecycle struct{ resizes *Resizes }

// Lifecycle returns it.
func (s *Resizes) Lifecycle() Lifecycle { return Lifecycle{s} }

// PreCreate does nothing.
func (Lifecycle) PreCreate(context.Context, *corev1.Pod, pod.Container, *runtimeapi.ContainerConfig) error {
	return nil
}

// PreStart notes what a container was made with. The pod is the one it was
// rendered from, which may not be the present one any more.
func (l Lifecycle) PreStart(_ context.Context, p *corev1.Pod, c pod.Container, id string) error {
	if c.Kind != pod.Ephemeral {
		l.resizes.give(p.UID, map[string]given{c.Name: {ID: id, Resources: c.Resources}})
	}
	return nil
}

// PreStop does nothing.
func (Lifecycle) PreStop(context.Context, string) error { return nil }

// PostStop does nothing.
func (Lifecycle) PostStop(context.Context, string) error { return nil }
