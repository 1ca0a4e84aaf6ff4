package placement

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/model/pod"
)

// PreCreate puts the container's CPUs and NUMA nodes into its configuration.
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

// PreStart books the container. What is shared may have changed since it was
// made, and others may run on what it has for itself: it waits until all of them
// have moved. Of those who cannot, the next look takes care; they do not hold up
// this one.
func (s *Placements) PreStart(ctx context.Context, p *corev1.Pod, c pod.Container, id string) error {
	s.mu.Lock()
	at, ok := s.made[ref{p.UID, c.Name}]
	if ok {
		delete(s.made, ref{p.UID, c.Name})
		s.booked[id] = &booking{pod: p, name: c.Name, at: at, told: at.cpus}
	}
	s.mu.Unlock()
	if !ok {
		return nil
	}
	if err := s.settle(ctx); err != nil {
		if ctx.Err() != nil {
			return err
		}
		s.opts.Log.Warn("Containers are not where they belong", "err", err)
		s.poke()
	}
	return nil
}

// PostStop releases the container. What its pod holds is released with the pod.
func (s *Placements) PostStop(_ context.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.booked, id)
	return nil
}
