package agent

import (
	"context"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/answer"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/steps/container/render"
	"github.com/berth-run/berth/internal/pod/steps/resize"
)

func newResizes(a *Agent, node render.Node) *resize.Resizes {
	return resize.New(resize.Options{
		Runtime: a.steps.updates(a), Cgroups: a.steps.cgroups, Swap: node.LimitedSwap && node.CgroupV2,
		Resources: func(p *corev1.Pod, c pod.Container) *runtimeapi.LinuxContainerResources {
			return render.Resources(render.Input{Pod: p, QOS: pod.QOS(p), Container: c, Node: node})
		},
		Fixed:  a.steps.allocations.Fixed,
		Events: a.events, Dir: filepath.Join(a.config.RootDir, "allocations"), Synced: a.sources.Synced(),
		Known: a.known, Log: a.log,
	})
}

// amender changes pods while they run.
type amender struct{ a *Agent }

// Resize implements server.Amender.
func (x amender) Resize(ctx context.Context, key types.NamespacedName, r api.Resize) (*corev1.Pod, error) {
	if err := x.wanted(key); err != nil {
		return nil, err
	}
	return amendedPod(x.a.sources.Resize(ctx, key, r.Container, r.Resources))
}

// AddEphemeral implements server.Amender.
func (x amender) AddEphemeral(ctx context.Context, key types.NamespacedName, c corev1.EphemeralContainer) (*corev1.Pod,
	error) {
	if err := x.wanted(key); err != nil {
		return nil, err
	}
	return amendedPod(x.a.sources.AddEphemeral(ctx, key, c))
}

// wanted refuses a pod that is not here, or on its way out.
func (x amender) wanted(key types.NamespacedName) error {
	row, ok := x.a.statuses.Pods().Get(key)
	switch {
	case !ok:
		return answer.NotFound(key)
	case row.DeletionTimestamp != nil:
		return answer.BadRequest("pod "+key.String()+" is being deleted", "")
	case pod.Ended(row.Status.Phase):
		return answer.BadRequest("pod "+key.String()+" has ended: it is "+string(row.Status.Phase), "")
	}
	return nil
}

func amendedPod(p *pod.Pod, err error) (*corev1.Pod, error) {
	if err != nil {
		return nil, applyError(err)
	}
	return p.Pod, nil
}
