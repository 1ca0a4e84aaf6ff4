package agent

import (
	"context"
	"time"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/node/drift"
	"github.com/berth-run/berth/internal/node/resource"
	"github.com/berth-run/berth/internal/pod/steps/cgroup"
	"github.com/berth-run/berth/internal/pod/steps/placement"
	"github.com/berth-run/berth/internal/record/event"
)

// holdings is the record of the CPUs and memory that belong to one pod alone.
type holdings interface {
	Get(types.UID) (resource.Allocation, bool)
	Shared() cpuset.CPUSet
}

// newPlacements makes the part that puts containers on the CPUs and memory nodes that the ledger allocates to them.
func newPlacements(a *Agent, held holdings, changed <-chan struct{}) *placement.Placements {
	return placement.New(placement.Options{
		Ledger: held, Changed: changed, Runtime: a.steps.updates(a), Cgroups: a.steps.cgroups.Containers(),
		Observed: a.tables.observed.Table, Pod: a.tables.fleet.Pod, Log: a.Log,
	})
}

// updates returns the runtime for parts that change the resources of running containers.
func (s *steps) updates(a *Agent) heldUpdates {
	return heldUpdates{a.machine.engine.Client.Runtime, func() *drift.Containers { return s.contained }}
}

// newCgroups makes the part that owns the cgroups above containers.
func newCgroups(a *Agent) *cgroup.Cgroups {
	c := a.Config
	return cgroup.New(cgroup.Config{
		Drift: a.steps.drift, Lost: a.tables.fleet.Wake, Node: event.NodeRef(c.NodeName),
		Driver: a.machine.engine.Driver, Root: c.Node.CgroupRoot, Usable: cgroup.Usable(a.machine.facts, c.Node),
		QOSReserved: c.Node.Enforce.QOSReservedMemory, Reserved: cgroup.ReservedOf(c.Node), Events: a.records.events,
		Log: a.Log, Pods: a.tables.fleet.Pods,
		Options: cgroup.Options{
			CFSQuota: c.Pods.CPUCFSQuota, CFSPeriod: c.Pods.CPUCFSQuotaPeriod, PidsLimit: c.Pods.PidsLimit,
			MemoryQoS: c.Node.Enforce.MemoryQoS,
			Unthrottled: func(p *corev1.Pod) bool {
				return !c.Node.Enforce.ThrottleExclusive && a.steps.placements.PodUnthrottled(p)
			},
		},
	})
}

// newDrift makes the part that notices changes of cgroups from outside. As in the kubelet, cpuManagerReconcilePeriod
// has an effect with the static policy only.
func newDrift(a *Agent) (*drift.Watch, error) {
	var audit time.Duration
	if pinning := a.Config.Node.Pinning; pinning.CPUs {
		audit = pinning.ReconcilePeriod
	}
	return drift.New(drift.Options{Audit: audit, Metrics: a.metrics, Events: a.records.events, Log: a.Log})
}

// newContainerDrift makes the part that notices changes of container cgroups from outside.
func newContainerDrift(a *Agent) *drift.Containers {
	return drift.NewContainers(drift.ContainerOptions{
		Watch: a.steps.drift, Runtime: a.machine.engine.Client.Runtime, Observed: a.tables.observed.Table,
		Pod:   a.tables.fleet.Pod,
		Group: a.steps.cgroups.Containers().Find, Place: a.steps.placements.Place,
	})
}

// heldUpdates is the runtime with one addition: it marks an update of a container as the agent's own, so that the drift
// watch does not report it as a change from outside.
type heldUpdates struct {
	runtimeapi.RuntimeServiceClient
	drift func() *drift.Containers
}

// UpdateContainerResources implements runtimeapi.RuntimeServiceClient.
func (u heldUpdates) UpdateContainerResources(ctx context.Context, r *runtimeapi.UpdateContainerResourcesRequest,
	opts ...grpc.CallOption) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	defer u.drift().Hold(r.ContainerId)()
	return u.RuntimeServiceClient.UpdateContainerResources(ctx, r, opts...)
}
