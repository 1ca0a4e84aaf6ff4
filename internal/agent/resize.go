package agent

import (
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

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
		Events: a.events, Dir: filepath.Join(a.Config.RootDir, "allocations"), Synced: a.sources.Synced(),
		Known: a.known, Log: a.Log,
	})
}
