package agent

import (
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/node/resource/device"
	"github.com/berth-run/berth/internal/pod/steps/allocation"
)

// newAllocations makes the part that records which CPUs, memory and devices belong to one pod alone.
func newAllocations(a *Agent) (*allocation.Allocations, error) {
	n, err := allocation.ReadNode(os.DirFS("/"), a.Config.Node, a.machine.facts, a.Log)
	if err != nil {
		return nil, err
	}
	s := allocation.New(allocation.Options{
		Node: n, Dir: filepath.Join(a.Config.RootDir, "resources"), Root: a.Config.RootDir, Events: a.records.events,
		Log:      a.Log,
		Devices:  func() device.Inventory { return a.steps.devices.Inventory() },
		Synced:   []<-chan struct{}{a.demand.sources.Synced(), a.tables.observed.Synced()},
		Desired:  a.demand.sources.Desired,
		Observed: a.tables.observed.Table, Pinned: func(p *corev1.Pod, id string) (string, string, bool) {
			return a.steps.cgroups.Containers().Pinned(p, id)
		},
		Known: a.known, Working: a.tables.fleet.Working,
	})
	logDamage(a.Log, s.Load())
	return s, nil
}
