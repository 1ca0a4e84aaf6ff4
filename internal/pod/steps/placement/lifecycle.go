package placement

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/model/pod"
)

// PreCreate adds the container's CPUs and NUMA nodes to its configuration.
func (s *Placements) PreCreate(_ context.Context, p *corev1.Pod, c pod.Container,
	config *runtimeapi.ContainerConfig) error {
	at := s.wanted(p, c.Name)
	if at == (place{}) {
		return nil
	}
	if config.Linux == nil {
		config.Linux = &runtimeapi.LinuxContainerConfig{}
	}
	if config.Linux.Resources == nil {
		config.Linux.Resources = &runtimeapi.LinuxContainerResources{}
	}
	r := config.Linux.Resources
	if at.cpus != "" {
		r.CpusetCpus = at.cpus
	}
	if at.mems != "" {
		r.CpusetMems = at.mems
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made[ref{p.UID, c.Name}] = at
	return nil
}

// PreStart records the container and waits until others have left its exclusive CPUs. It also moves the container if
// the shared CPUs changed since its creation. It fails if the container itself cannot be moved, or if another container
// may still run on its exclusive CPUs. Otherwise a container that cannot be moved does not delay this start: Run
// retries it.
func (s *Placements) PreStart(ctx context.Context, p *corev1.Pod, c pod.Container, id string) error {
	s.mu.Lock()
	at, ok := s.made[ref{p.UID, c.Name}]
	if ok {
		delete(s.made, ref{p.UID, c.Name})
		s.booked[id] = &booking{pod: p, name: c.Name, at: at, reported: at.cpus}
	}
	s.mu.Unlock()
	if !ok {
		return nil
	}
	failed := s.settle(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	exclusive := at.cpus
	if exclusive == s.opts.Ledger.Shared().String() {
		exclusive = ""
	}
	err := affecting(failed, id, exclusive)
	if err != nil {
		_ = s.PostStop(ctx, id) // it never fails: the container does not start
	}
	if len(failed) > 0 {
		s.opts.Log.Warn("move containers to their CPUs failed, retrying", "err", joined(failed))
		s.wake.Wake()
	}
	return err
}

// PostStop removes the record of the container. The allocation stays with the pod.
func (s *Placements) PostStop(_ context.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.booked, id)
	return nil
}
