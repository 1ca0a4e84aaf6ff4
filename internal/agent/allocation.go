package agent

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/berth-run/berth/internal/api/podresources"
	"github.com/berth-run/berth/internal/node/resource"
	"github.com/berth-run/berth/internal/pod/fleet"
	"github.com/berth-run/berth/internal/pod/steps/allocation"
	"github.com/berth-run/berth/internal/pod/steps/device"
)

// roll knows the pods that concern this node.
func (a *Agent) roll() fleet.Roll {
	return fleet.Roll{Desired: a.demand.sources.Desired, Fleet: a.tables.fleet}
}

// buildAllocations makes the parts that record which CPUs, memory and devices belong to one pod alone, and that talk to
// device plugins. When a plugin's devices change, admission checks the waiting pods again. When the health of a device
// changes, the pods that hold it get a new status.
func (a *Agent) buildAllocations(n resource.Node, ledger *resource.Ledger) {
	c := a.Config
	a.steps.devices = device.New(device.Options{
		Dir: filepath.Join(c.RootDir, "device-plugins"), State: filepath.Join(c.RootDir, "devices"),
		Machine: n.NUMANodes(), Boot: a.machine.facts.Info.BootID,
		Ledger: ledger, Admission: a.tables.fleet, Statuses: a.tables.stale,
		Metrics: a.metrics, Events: a.records.events, Now: time.Now, Log: a.Log,
	})
	a.steps.allocations = allocation.New(allocation.Options{
		Node: n, Ledger: ledger, Dir: ledgerDir(c.RootDir), Root: c.RootDir, Devices: a.steps.devices,
		Desired: a.demand.sources.Desired, Observed: a.tables.observed.Table,
		Synced:  []<-chan struct{}{a.demand.sources.Synced(), a.tables.observed.Synced()},
		Cgroups: a.steps.cgroups.Containers(), Pods: a.roll(), Events: a.records.events, Log: a.Log,
	})
	logDamage(a.Log, a.steps.allocations.Load())
	logDamage(a.Log, a.steps.devices.Load())
	held := a.steps.devices.Records()
	_, takenErr := ledger.TakeOver(held.FromKubelet())
	_, err := ledger.Rebuild(held.Held())
	logDamage(a.Log, errors.Join(takenErr, err))
}

// ledgerDir is the directory of the ledger below the root directory.
func ledgerDir(root string) string { return filepath.Join(root, "resources") }

// readNode reads the machine's CPUs and memory, and makes the ledger of what pods hold of them.
func (a *Agent) readNode() (n resource.Node, ledger *resource.Ledger, err error) {
	if n, err = allocation.ReadNode(os.DirFS("/"), a.Config.Node, a.machine.facts, a.Log); err != nil {
		return n, nil, err
	}
	return n, resource.NewLedger(resource.LedgerOptions{Dir: ledgerDir(a.Config.RootDir), Node: n, Log: a.Log}), nil
}

// newPodResources makes the PodResources API.
func newPodResources(a *Agent) *podresources.Server {
	return podresources.New(podresources.Options{
		Socket: filepath.Join(a.Config.RootDir, "pod-resources", "kubelet.sock"), Pods: a.tables.fleet,
		Ledger: a.steps.allocations, Devices: a.steps.devices, Claims: a.demand.access.Drivers, Log: a.Log,
	})
}
