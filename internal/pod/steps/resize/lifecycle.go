package resize

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/model/pod"
)

// PreStart records the resources with which a container was created. p is the version of the pod from which the
// container's configuration was made, which may be older than the present one.
func (s *Resizes) PreStart(_ context.Context, p *corev1.Pod, c pod.Container, id string) error {
	if c.Kind != pod.Ephemeral {
		s.give(p.UID, map[string]given{c.Name: {ID: id, Resources: c.Resources}})
	}
	return nil
}
