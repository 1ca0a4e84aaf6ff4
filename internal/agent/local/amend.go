package local

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/answer"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/podstatus"
)

// Resize implements server.Amender.
func (x Pods) Resize(ctx context.Context, key types.NamespacedName, r api.Resize) (*corev1.Pod, error) {
	if err := x.wanted(key); err != nil {
		return nil, err
	}
	return amendedPod(x.Sources.Resize(ctx, key, r.Container, r.Resources))
}

// AddEphemeral implements server.Amender.
func (x Pods) AddEphemeral(ctx context.Context, key types.NamespacedName, c corev1.EphemeralContainer) (*corev1.Pod,
	error) {
	if err := x.wanted(key); err != nil {
		return nil, err
	}
	return amendedPod(x.Sources.AddEphemeral(ctx, key, c))
}

// chooseRunning is the next step after a pod that cannot be amended any more.
const chooseRunning = `choose a pod that runs: "berth get pods" lists them`

// wanted returns an error for a pod that does not exist, is being deleted or has ended.
func (x Pods) wanted(key types.NamespacedName) error {
	row, ok := x.Statuses.Pods().Get(key)
	switch {
	case !ok:
		return answer.NotFound(key)
	case row.DeletionTimestamp != nil:
		return answer.BadRequest("pod "+key.String()+" is being deleted", chooseRunning)
	case pod.Ended(row.Status.Phase):
		return answer.BadRequest("pod "+key.String()+" has ended: it is "+string(row.Status.Phase), chooseRunning)
	}
	return nil
}

func amendedPod(p *pod.Pod, err error) (*corev1.Pod, error) {
	if err != nil {
		return nil, applyError(err)
	}
	return p.Pod, nil
}

// SetCondition implements server.Amender.
func (x Pods) SetCondition(_ context.Context, key types.NamespacedName, c corev1.PodCondition) (*corev1.Pod, error) {
	row, ok := x.Statuses.Pods().Get(key)
	switch {
	case !ok:
		return nil, answer.NotFound(key)
	case !podstatus.Foreign(c.Type):
		return nil,
			answer.BadRequest(fmt.Sprintf("condition %s is computed by the agent", c.Type),
				"set another condition, such as one that a readiness gate names")
	}
	x.Statuses.SetCondition(row.UID, c)
	if now, ok := x.Statuses.Pods().Get(key); ok && now.UID == row.UID {
		return now, nil
	}
	return nil, answer.NotFound(key)
}
