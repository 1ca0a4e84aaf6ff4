package resize

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/worker"
	"github.com/berth-run/berth/internal/record/event"
)

// Step makes the actuated resources equal to the allocated ones. It runs before the step of the containers, so that a
// starting container finds room in the pod's cgroup.
func (s *Resizes) Step() worker.Step {
	return worker.Step{
		Name: "resize", Phase: worker.Act, After: []string{"cgroup"},
		Setup: func(ctx context.Context, r *worker.Run) error { s.setup(ctx, r.Pod, r.Observed, r.Tasks); return nil },
	}
}

// tasks is the part of worker.Tasks that is used here.
type tasks interface {
	Go(ctx context.Context, key string, f func(context.Context) error) bool
}

func (s *Resizes) setup(ctx context.Context, p *pod.Pod, o *pod.Observed, tasks tasks) {
	w := difference(p.Pod, o, s.given(p.UID))
	switch {
	case w.idle() && w.awaited:
		// The plan restarts the marked containers. The pod's cgroup has grown already.
	case w.idle() && s.opts.Cgroups.Fits(p.Pod):
		s.finish(p.Pod)
	default:
		tasks.Go(ctx, "resize", func(ctx context.Context) error { return s.carryOut(ctx, p.Pod, w) })
	}
}

// carryOut does the work of one pass. The worker retries it after an error.
func (s *Resizes) carryOut(ctx context.Context, p *corev1.Pod, w work) error {
	began := time.Now()
	err := s.opts.Cgroups.Grow(p)
	if err == nil {
		err = s.change(ctx, p, w)
	}
	if err == nil && !w.awaited && len(w.restarts) == 0 {
		err = s.opts.Cgroups.Fit(p)
	}
	if ctx.Err() == nil {
		s.metrics.tried(time.Since(began), err)
		s.note(p, err)
	}
	return err
}

// change updates containers and marks those that must restart.
func (s *Resizes) change(ctx context.Context, p *corev1.Pod, w work) error {
	for _, u := range w.updates {
		if err := s.update(ctx, p, u); err != nil {
			return fmt.Errorf("resize container %q: %w", u.container.Name, err)
		}
	}
	if len(w.restarts) == 0 {
		return nil
	}
	now, marked := s.given(p.UID), map[string]given{}
	for _, name := range w.restarts {
		g := now[name]
		g.Restart = true
		marked[name] = g
	}
	s.give(p.UID, marked)
	return s.save(p.UID)
}

func (s *Resizes) update(ctx context.Context, p *corev1.Pod, u update) error {
	if u.less() {
		if err := s.roomLeft(ctx, u); err != nil {
			return err
		}
	}
	_, err := s.opts.Runtime.UpdateContainerResources(ctx, &runtimeapi.UpdateContainerResourcesRequest{
		ContainerId: u.id, Linux: updateOf(s.opts.Resources(p, u.container)),
	})
	if err != nil {
		return err
	}
	s.give(p.UID, map[string]given{u.container.Name: {ID: u.id, Resources: u.container.Resources}})
	return s.save(p.UID)
}

// roomLeft returns an error if a new memory limit is below the present usage, because the kernel would then kill the
// container. The check can miss usage that grows meanwhile.
func (s *Resizes) roomLeft(ctx context.Context, u update) error {
	stats, err := s.opts.Runtime.ContainerStats(ctx, &runtimeapi.ContainerStatsRequest{ContainerId: u.id})
	if err != nil {
		return fmt.Errorf("read memory usage: %w", err)
	}
	limit := u.container.Resources.Limits[corev1.ResourceMemory]
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
func (s *Resizes) note(p *corev1.Pod, err error) {
	text, news := "", false
	if err != nil {
		text = err.Error()
	}
	s.with(p.UID, func(e *entry) bool {
		news = text != "" && e.failed != text && e.Resizing
		e.failed = text
		return false
	})
	if news {
		s.opts.Events.Event(event.PodRef(p), corev1.EventTypeWarning, ResizeError, "Error resizing pod: %s", text)
	}
}

// finish completes a resize that has no work left.
func (s *Resizes) finish(p *corev1.Pod) {
	ended := false
	s.with(p.UID, func(e *entry) bool {
		ended = e.Resizing
		e.Resizing, e.failed = false, ""
		return ended
	})
	if ended {
		s.opts.Events.Event(event.PodRef(p), corev1.EventTypeNormal, ResizeCompleted, "Pod resize completed: %s",
			describe(p))
	}
}
