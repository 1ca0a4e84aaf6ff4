package resize

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/model/pod"
)

// PreStart records the resources that a container was created with. p is the version of the pod that the container's
// configuration was made from. It may be older than the present version.
func (s *Resizes) PreStart(_ context.Context, p *corev1.Pod, c pod.Container, id string) error {
	if c.Kind != pod.Ephemeral {
		s.give(p.UID, map[string]given{c.Name: giving(p, c, id)})
	}
	return nil
}
