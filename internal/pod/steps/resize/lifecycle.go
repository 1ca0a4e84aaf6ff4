package resize

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/model/pod"
)

// PreStart notes what a container was made with, in the internal lifecycle of
// containers. The pod is the one it was rendered from, which may not be the present
// one any more.
func (s *Resizes) PreStart(_ context.Context, p *corev1.Pod, c pod.Container, id string) error {
	if c.Kind != pod.Ephemeral {
		s.give(p.UID, map[string]given{c.Name: {ID: id, Resources: c.Resources}})
	}
	return nil
}
