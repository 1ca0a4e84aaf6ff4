package agent

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/base/clock"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/node/drift"
	"github.com/berth-run/berth/internal/node/resource"
	"github.com/berth-run/berth/internal/pod/steps/cgroup"
	"github.com/berth-run/berth/internal/pod/steps/placement"
	"github.com/berth-run/berth/internal/pod/worker"
	"github.com/berth-run/berth/internal/record/event"
)

// holdings are what pods hold of the node's CPUs and memory.
type holdings interface {
	Get(types.UID) (resource.Allocation, bool)
	Shared() cpuset.CPUSet
}

// newPlacements makes the part that carries out what the ledger says.
func newPlacements(a *Agent, held holdings, changed <-chan struct{}) *placement.Placements {
	return placement.New(placement.Options{
		Ledger: held, Changed: changed, Runtime: a.steps.updates(a), Cgroups: a.steps.cgroups.Containers(),
		Observed: a.pleg.Table(), Pod: cgroupView{a}.pod, Log: a.Log,
	})
}

// pod is one that lives here.
func (v cgroupView) pod(uid types.UID) (*corev1.Pod, bool) {
	m, ok := v.fleet.Member(uid)
	if !ok {
		return nil, false
	}
	return m.Pod.Pod, true
}

// updates is the runtime for those who change containers that run.
func (s *steps) updates(a *Agent) heldUpdates {
	return heldUpdates{a.engine.Client.Runtime, func() *drift.Containers { return s.contained }}
}

// newCgroups makes the part that owns the cgroups above containers.
func newCgroups(a *Agent) *cgroup.Cgroups {
	c := a.Config
	return cgroup.New(cgroup.Config{
		Drift: a.steps.drift, Lost: func(uid types.UID) { a.fleet.Wake(uid) }, Node: event.NodeRef(c.NodeName),
		Driver: a.engine.Driver, Root: c.Node.CgroupRoot, Usable: cgroup.Usable(a.facts, c.Node),
		QOSReserved: c.Node.Enforce.QOSReservedMemory, Reserved: cgroup.ReservedOf(c.Node), Events: a.events,
		Log: a.Log, Pods: a.admitted,
		Options: cgroup.Options{
			CFSQuota: c.Pods.CPUCFSQuota, CFSPeriod: c.Pods.CPUCFSQuotaPeriod, PidsLimit: c.Pods.PidsLimit,
			MemoryQoS: c.Node.Enforce.MemoryQoS,
			Unthrottled: func(p *corev1.Pod) bool {
				return !c.Node.Enforce.ThrottleExclusive && a.steps.placements.PodUnthrottled(p)
			},
		},
	})
}

// newDrift makes the part that notices changes of cgroups from outside. As in the
// kubelet, cpuManagerReconcilePeriod has an effect with the static policy only.
func newDrift(a *Agent) (*drift.Watch, error) {
	var audit time.Duration
	if pinning := a.Config.Node.Pinning; pinning.CPUs {
		audit = pinning.ReconcilePeriod
	}
	return drift.New(drift.Options{Audit: audit, Metrics: a.metrics, Events: a.events, Log: a.Log})
}

// newContainerDrift looks after the cgroups of containers.
func newContainerDrift(a *Agent) *drift.Containers {
	return drift.NewContainers(drift.ContainerOptions{
		Watch: a.steps.drift, Runtime: a.engine.Client.Runtime, Observed: a.pleg.Table(), Pod: cgroupView{a}.pod,
		Group: a.steps.cgroups.Containers().Find, Place: a.steps.placements.Place,
	})
}

// heldUpdates is a runtime whose updates of containers are ours: they are no drift.
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

// cgroupView is how the worker sees a pod: a sandbox whose cgroup has vanished
// under it is not ready any more, whatever the runtime says. The plan then stops
// what runs and makes the pod again.
type cgroupView struct{ *Agent }

func (v cgroupView) observed(uid types.UID) *pod.Observed {
	o := v.pleg.Observed(uid)
	lost := v.steps.cgroups.Vanished(uid)
	if o == nil || lost.IsZero() {
		return o
	}
	if m, ok := v.fleet.Member(uid); !ok || m.State.Stage != worker.Syncing {
		return o // it is ended with all that the runtime has
	}
	return withoutSandboxesBefore(o, lost, time.Now())
}

// withoutSandboxesBefore is what is observed with the sandboxes of before that time not ready, whatever has
// become of the machine's clock since.
func withoutSandboxesBefore(o *pod.Observed, lost, now time.Time) *pod.Observed {
	c := *o
	c.Sandboxes = slices.Clone(o.Sandboxes)
	for i := range c.Sandboxes {
		s := &c.Sandboxes[i]
		s.Ready = s.Ready && clock.After(s.CreatedAt, lost, now)
	}
	return &c
}
