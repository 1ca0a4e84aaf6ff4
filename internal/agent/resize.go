package agent

import (
	"path/filepath"

	"github.com/berth-run/berth/internal/pod/steps/container/render"
	"github.com/berth-run/berth/internal/pod/steps/resize"
)

func newResizes(a *Agent, node render.Node) *resize.Resizes {
	return resize.New(resize.Options{
		Runtime: a.steps.updates(a), Cgroups: a.steps.cgroups, Swap: node.LimitedSwap && node.CgroupV2,
		Resources: node, Allocations: a.steps.allocations,
		Events: a.records.events, Dir: filepath.Join(a.Config.RootDir, "allocations"),
		Synced: a.demand.sources.Synced(),
		Known:  a.known, Log: a.Log,
	})
}
