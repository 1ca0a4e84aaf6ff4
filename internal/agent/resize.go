package agent

import (
	"path/filepath"

	"github.com/berth-run/berth/internal/node/drift"
	"github.com/berth-run/berth/internal/pod/steps/container/render"
	"github.com/berth-run/berth/internal/pod/steps/resize"
)

func newResizes(a *Agent, node render.Node, updates drift.Updates) *resize.Resizes {
	o, off := resize.Options{
		Runtime: updates, Cgroups: a.steps.cgroups, Swap: node.LimitedSwap && node.CgroupV2,
		Resources: node, Allocations: a.steps.allocations,
		Events: a.records.events, Dir: filepath.Join(a.Config.RootDir, "allocations"),
		Synced: a.demand.sources.Synced(),
		Pods:   a.roll(), Log: a.Log,
	}, a.Config.Disabled
	o.InitFixed, o.PodFixed = off.Resources.ResizeInit, off.Resources.ResizePod
	if a.Config.Cluster != nil {
		o.KubeletDir = a.Config.RootDir
	}
	return resize.New(o)
}
