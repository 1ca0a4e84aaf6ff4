package servertest

import (
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/answer"
)

// amender changes pods in the table. An ephemeral container ends at once, with exit code 3 if its command
// is "fail" and 0 otherwise.
type amender struct{ *Agent }

func (a amender) Resize(_ context.Context, key types.NamespacedName, r api.Resize) (*corev1.Pod, error) {
	return a.amend(key, func(p *corev1.Pod) {
		for i := range p.Spec.Containers {
			if c := &p.Spec.Containers[i]; c.Name == r.Container {
				c.Resources.Limits = maps.Clone(r.Resources.Limits)
				c.Resources.Requests = maps.Clone(r.Resources.Requests)
			}
		}
	})
}

func (a amender) SetCondition(_ context.Context, key types.NamespacedName, c corev1.PodCondition) (*corev1.Pod, error) {
	return a.amend(key, func(p *corev1.Pod) { p.Status.Conditions = append(p.Status.Conditions, c) })
}

func (a amender) AddEphemeral(_ context.Context, key types.NamespacedName, c corev1.EphemeralContainer) (*corev1.Pod,
	error) {
	return a.amend(key, func(p *corev1.Pod) {
		code := int32(0)
		if len(c.Command) > 0 && c.Command[0] == "fail" {
			code = 3
		}
		p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, c)
		p.Status.EphemeralContainerStatuses = append(p.Status.EphemeralContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}},
		})
	})
}

func (a amender) amend(key types.NamespacedName, change func(*corev1.Pod)) (*corev1.Pod, error) {
	row, ok := a.Pods.Get(key)
	if !ok {
		return nil, answer.NotFound(key)
	}
	p := row.DeepCopy()
	change(p)
	a.Put(p)
	return p, nil
}
