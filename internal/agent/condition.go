package agent

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/api/answer"
	"github.com/berth-run/berth/internal/pod/podstatus"
)

// SetCondition implements server.Amender.
func (x amender) SetCondition(_ context.Context, key types.NamespacedName, c corev1.PodCondition) (*corev1.Pod, error) {
	row, ok := x.a.statuses.Pods().Get(key)
	switch {
	case !ok:
		return nil, answer.NotFound(key)
	case !podstatus.Foreign(c.Type):
		return nil,
			answer.BadRequest(fmt.Sprintf("condition %s is computed by the agent", c.Type),
				"set another one, such as that of a readiness gate")
	}
	x.a.statuses.SetCondition(row.UID, c)
	if now, ok := x.a.statuses.Pods().Get(key); ok && now.UID == row.UID {
		return now, nil
	}
	return nil, answer.NotFound(key)
}
