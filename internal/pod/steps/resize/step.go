package resize

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/worker"
	"github.com/berth-run/berth/internal/record/event"
)

// Step makes the actuated resources equal to the allocated ones. It runs before the step of the containers, so that a
// starting container finds room in the pod's cgroup.
func (s *Resizes) Step() worker.Step {
	return worker.Step{
		Name: "resize", Phase: worker.Act, After: []string{"cgroup"},
		Setup: func(ctx context.Context, r *worker.Run) error {
			s.actuator.setup(ctx, r.Pod, r.Observed, r.Tasks)
			return nil
		},
	}
}

// actuator makes the resources of running containers and of pods' cgroups equal to the allocated ones.
type actuator struct {
	ledger    *ledger
	runtime   runtime
	cgroups   cgroups
	resources resources
	events    event.Sink
	metrics   metrics
}

// tasks is the part of worker.Tasks that is used here.
type tasks interface {
	Go(ctx context.Context, key string, f func(context.Context) error) bool
}

func (a *actuator) setup(ctx context.Context, p *pod.Pod, o *pod.Observed, tasks tasks) {
	w := difference(p.Pod, o, a.ledger.given(p.UID), a.ledger.initFixed)
	switch {
	case w.idle() && w.awaited:
		// The plan restarts the marked containers. The pod's cgroup has grown already.
	case w.idle() && a.cgroups.Fits(p.Pod):
		a.finish(p.Pod)
	default:
		box, _ := o.Sandbox()
		tasks.Go(ctx, "resize", func(ctx context.Context) error { return a.carryOut(ctx, p.Pod, box.ID, w) })
	}
}

// carryOut does the work of one pass. The worker retries it after an error.
func (a *actuator) carryOut(ctx context.Context, p *corev1.Pod, sandbox string, w work) error {
	began := time.Now()
	err := a.propose(ctx, p, sandbox)
	if err == nil {
		err = a.cgroups.Grow(p)
	}
	if err == nil {
		err = a.change(ctx, p, w)
	}
	if err == nil && !w.awaited && len(w.restarts) == 0 {
		if err = a.cgroups.Fit(p); err == nil {
			a.ledger.giveWhole(p)
		}
	}
	if ctx.Err() == nil {
		a.metrics.tried(time.Since(began), err)
		a.note(p, err)
	}
	return err
}

// propose reports to the runtime the new resources of the pod as a whole, before anything changes. A runtime that
// starts a virtual machine for a pod may refuse them. A runtime without the call has no objection.
func (a *actuator) propose(ctx context.Context, p *corev1.Pod, sandbox string) error {
	if sandbox == "" {
		return nil
	}
	containers, overhead := a.resources.PodResources(p)
	_, err := a.runtime.UpdatePodSandboxResources(ctx, &runtimeapi.UpdatePodSandboxResourcesRequest{
		PodSandboxId: sandbox, Resources: containers, Overhead: overhead,
	})
	if err == nil || cri.IsUnimplemented(err) {
		return nil
	}
	return fmt.Errorf("the runtime refuses the resize: %w", err)
}

// change updates containers and marks those that must restart.
func (a *actuator) change(ctx context.Context, p *corev1.Pod, w work) error {
	for _, u := range w.updates {
		if err := a.update(ctx, p, u); err != nil {
			return fmt.Errorf("resize container %q: %w", u.container.Name, err)
		}
	}
	if len(w.restarts) == 0 {
		return nil
	}
	now, marked := a.ledger.given(p.UID), map[string]given{}
	for name, id := range w.restarts {
		if g := now[name]; g.ID == id { // else it was replaced meanwhile
			g.Restart = true
			marked[name] = g
		}
	}
	a.ledger.give(p.UID, marked)
	return a.ledger.save(p.UID)
}

func (a *actuator) update(ctx context.Context, p *corev1.Pod, u update) error {
	if u.less() {
		if err := a.roomLeft(ctx, u); err != nil {
			return err
		}
	}
	_, err := a.runtime.UpdateContainerResources(ctx, &runtimeapi.UpdateContainerResourcesRequest{
		ContainerId: u.id, Linux: updateOf(a.resources.Resources(p, u.container)),
	})
	if err != nil {
		return err
	}
	a.ledger.give(p.UID, map[string]given{u.container.Name: giving(p, u.container, u.id)})
	return a.ledger.save(p.UID)
}

// roomLeft returns an error if a new memory limit is below the present usage, because the kernel would then kill the
// container. The check can miss usage that grows meanwhile.
func (a *actuator) roomLeft(ctx context.Context, u update) error {
	stats, err := a.runtime.ContainerStats(ctx, &runtimeapi.ContainerStatsRequest{ContainerId: u.id})
	if err != nil {
		return fmt.Errorf("read memory usage: %w", err)
	}
	limit := u.want.Limits[corev1.ResourceMemory]
	if used := int64(stats.GetStats().GetMemory().GetUsageBytes().GetValue()); used > limit.Value() {
		return fmt.Errorf("attempting to set container memory limit (%d) below current usage (%d)", limit.Value(), used)
	}
	return nil
}

// updateOf converts resources into an update of a running container. The runtime ignores zeros, so -1 removes a limit.
func updateOf(r *runtimeapi.LinuxContainerResources) *runtimeapi.LinuxContainerResources {
	u := &runtimeapi.LinuxContainerResources{
		CpuShares: r.CpuShares, CpuPeriod: r.CpuPeriod, CpuQuota: r.CpuQuota, MemoryLimitInBytes: r.MemoryLimitInBytes,
		MemorySwapLimitInBytes: r.MemorySwapLimitInBytes, Unified: r.Unified,
	}
	if u.CpuQuota == 0 {
		u.CpuQuota = -1
	}
	if u.MemoryLimitInBytes == 0 {
		u.MemoryLimitInBytes = -1
		if r.Unified == nil {
			u.MemorySwapLimitInBytes = -1
		}
	}
	return u
}

// note records the result of the last try and emits an event for a new failure.
func (a *actuator) note(p *corev1.Pod, err error) {
	text, news, generation := "", false, int64(0)
	if err != nil {
		text = err.Error()
	}
	a.ledger.with(p.UID, func(e *entry) bool {
		news = text != "" && e.failed != text && e.Resizing
		e.failed, generation = text, e.Generation
		return false
	})
	if news {
		a.events.Event(event.PodRef(p), corev1.EventTypeWarning, ResizeError, "Pod resize error: %s",
			describe(p, generation, text))
	}
}

// finish completes a resize that has no work left.
func (a *actuator) finish(p *corev1.Pod) {
	ended, generation := false, int64(0)
	a.ledger.with(p.UID, func(e *entry) bool {
		ended, generation = e.Resizing, e.Generation
		e.Resizing, e.failed = false, ""
		return ended
	})
	if ended {
		a.events.Event(event.PodRef(p), corev1.EventTypeNormal, ResizeCompleted, "Pod resize completed: %s",
			describe(p, generation, ""))
	}
}
