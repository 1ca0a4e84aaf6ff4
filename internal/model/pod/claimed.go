package pod

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// WithoutClaimed returns the pod without the extended resources that its containers get from the ResourceClaim of the
// scheduler (KEP-5004). A DRA driver supplies these, not the node or a device plugin. A pod without such resources is
// returned unchanged.
func WithoutClaimed(p *corev1.Pod) *corev1.Pod {
	s := p.Status.ExtendedResourceClaimStatus
	if s == nil || len(s.RequestMappings) == 0 {
		return p
	}
	next := *p
	for _, list := range []*[]corev1.Container{&next.Spec.InitContainers, &next.Spec.Containers} {
		*list = slices.Clone(*list)
		for i := range *list {
			c := &(*list)[i]
			c.Resources.Requests, c.Resources.Limits = maps.Clone(c.Resources.Requests), maps.Clone(c.Resources.Limits)
			for _, m := range s.RequestMappings {
				if m.ContainerName == c.Name {
					delete(c.Resources.Requests, corev1.ResourceName(m.ResourceName))
					delete(c.Resources.Limits, corev1.ResourceName(m.ResourceName))
				}
			}
		}
	}
	return &next
}
