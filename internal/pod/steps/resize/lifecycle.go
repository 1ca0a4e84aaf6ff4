package resize

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/model/pod"
)

// PreStart records the resources that a container was created with. p is the version of the pod that the container's
// configuration was made from. It may be older than the present version. The plan may still see the instance before it
// as the newest for a while, so that one keeps its mark.
func (s *Resizes) PreStart(_ context.Context, p *corev1.Pod, c pod.Container, id string) error {
	if c.Kind != pod.Ephemeral {
		before, g := s.given(p.UID)[c.Name], giving(p, c, id)
		if g.Replaced = before.Replaced; before.Restart {
			g.Replaced = before.ID
		}
		s.give(p.UID, map[string]given{c.Name: g})
	}
	return nil
}
