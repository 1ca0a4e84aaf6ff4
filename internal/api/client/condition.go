package client

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// SetCondition sets a pod condition that the agent does not compute, such as one of a readiness gate, and
// returns the changed pod.
func (c *Client) SetCondition(ctx context.Context, key types.NamespacedName,
	condition corev1.PodCondition) (*corev1.Pod, error) {
	return c.amend(ctx, key, "conditions", condition)
}
