package agent

import (
	"github.com/berth-run/berth/internal/node/drift"
	"github.com/berth-run/berth/internal/node/resource"
	"github.com/berth-run/berth/internal/pod/steps/cgroup"
	"github.com/berth-run/berth/internal/pod/steps/placement"
	"github.com/berth-run/berth/internal/record/event"
)

// newPlacements makes the part that puts containers on the CPUs and memory nodes that the ledger allocates to them.
func newPlacements(a *Agent, ledger *resource.Ledger, updates drift.Updates) *placement.Placements {
	return placement.New(placement.Options{
		Ledger: ledger, Changed: ledger.Subscribe(), Runtime: updates, Cgroups: a.steps.cgroups.Containers(),
		Observed: a.tables.observed.Table, Pods: a.tables.fleet, Log: a.Log,
	})
}

// newCgroups makes the part that owns the cgroups above containers.
func newCgroups(a *Agent, rules placement.Rules) *cgroup.Cgroups {
	c := a.Config
	o := cgroup.Options{
		CFSQuota: c.Pods.CPUCFSQuota, CFSPeriod: c.Pods.CPUCFSQuotaPeriod, PidsLimit: c.Pods.PidsLimit,
		MemoryQoS: c.Node.Enforce.MemoryQoS,
	}
	if !c.Node.Enforce.ThrottleExclusive {
		o.Quota = rules
	}
	return cgroup.New(cgroup.Config{
		Drift: a.steps.drift, Fleet: a.tables.fleet, Node: event.NodeRef(c.NodeName),
		Driver: a.machine.engine.Driver, Root: c.Node.CgroupRoot, Usable: cgroup.Usable(a.machine.facts, c.Node),
		QOSReserved: c.Node.Enforce.QOSReservedMemory, Reserved: cgroup.ReservedOf(c.Node), Events: a.records.events,
		Log: a.Log, Options: o,
	})
}

// newDrift makes the part that notices changes of cgroups from outside.
func newDrift(a *Agent) (*drift.Watch, error) {
	return drift.New(drift.Options{Audit: a.Config.Node.Pinning.Audit(), Metrics: a.metrics, Events: a.records.events,
		Log: a.Log})
}

// newContainerDrift makes the part that notices changes of container cgroups from outside.
func newContainerDrift(a *Agent, rules placement.Rules) *drift.Containers {
	return drift.NewContainers(drift.ContainerOptions{
		Watch: a.steps.drift, Runtime: a.machine.engine.Client.Runtime, Observed: a.tables.observed.Table,
		Pods: a.tables.fleet, Cgroups: a.steps.cgroups.Containers(), Places: rules,
	})
}
