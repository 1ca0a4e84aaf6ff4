package index

import (
	"slices"
	"strings"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/docker/dockershim/identity"
)

// read converts Docker's description of a container. The error says why the container does not belong to Kubernetes.
func read(c *container.InspectResponse) (*Record, error) {
	i, err := identity.Read(c.Name, c.Config.Labels)
	if err != nil {
		return nil, err
	}
	r := &Record{
		Identity: i, ID: c.ID, Name: strings.TrimPrefix(c.Name, "/"), State: state(c.State), Pid: c.State.Pid,
		Times: Times{Created: nanoseconds(c.Created), Started: nanoseconds(c.State.StartedAt),
			Finished: nanoseconds(c.State.FinishedAt)},
		ExitCode: int32(c.State.ExitCode), OOMKilled: c.State.OOMKilled, Message: c.State.Error,
		Image: c.Config.Image, ImageID: c.Image, Host: c.HostConfig, User: c.Config.User,
		StopSignal: c.Config.StopSignal,
		Files:      Files{Log: c.LogPath, ResolvConf: c.ResolvConfPath},
		Mounts:     mounts(c), Resources: resources(c.HostConfig),
	}
	if c.GraphDriver != nil {
		r.Files.Upper = c.GraphDriver.Data["UpperDir"]
	}
	if r.Exited() && r.Times.Finished == 0 { // it did not start
		r.Times.Finished = r.Times.Created
	}
	if !r.Exited() { // Docker keeps the end of an earlier run
		r.Times.Finished = 0
	}
	return r, nil
}

// state returns the state of a container. In Docker a container that failed to start stays in the state "created" and
// has an exit code.
func state(s *container.State) runtimeapi.ContainerState {
	switch s.Status {
	case container.StateRunning, container.StatePaused, container.StateRestarting:
		return runtimeapi.ContainerState_CONTAINER_RUNNING
	case container.StateExited, container.StateDead, container.StateRemoving:
		return runtimeapi.ContainerState_CONTAINER_EXITED
	case container.StateCreated:
		if s.ExitCode != 0 {
			return runtimeapi.ContainerState_CONTAINER_EXITED
		}
		return runtimeapi.ContainerState_CONTAINER_CREATED
	}
	return runtimeapi.ContainerState_CONTAINER_UNKNOWN
}

// nanoseconds reads a time of Docker. It returns 0 for Docker's zero time, which is in the year 1, and for no time.
func nanoseconds(text string) int64 {
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || at.Year() < 1970 {
		return 0
	}
	return at.UnixNano()
}

// mounts returns the mounts of a container, sorted by their path. Volumes that Docker made for the image are left out.
func mounts(c *container.InspectResponse) (all []*runtimeapi.Mount) {
	for _, m := range c.Mounts {
		if m.Type != mount.TypeBind {
			continue
		}
		all = append(all, &runtimeapi.Mount{ContainerPath: m.Destination, HostPath: m.Source, Readonly: !m.RW,
			Propagation: propagation(m.Propagation), RecursiveReadOnly: recursive(c.HostConfig, m.Destination)})
	}
	for _, m := range c.HostConfig.Mounts {
		if m.Type == mount.TypeImage {
			all = append(all, &runtimeapi.Mount{ContainerPath: m.Target, Image: &runtimeapi.ImageSpec{Image: m.Source},
				Readonly: true})
		}
	}
	slices.SortFunc(all, func(a, b *runtimeapi.Mount) int { return strings.Compare(a.ContainerPath, b.ContainerPath) })
	return all
}

// recursive reports whether the mount at a path was requested as recursively read-only.
func recursive(h *container.HostConfig, path string) bool {
	return slices.ContainsFunc(h.Mounts, func(m mount.Mount) bool {
		return m.Target == path && m.BindOptions != nil && m.BindOptions.ReadOnlyForceRecursive
	})
}

func propagation(p mount.Propagation) runtimeapi.MountPropagation {
	switch p {
	case mount.PropagationRShared, mount.PropagationShared:
		return runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL
	case mount.PropagationRSlave, mount.PropagationSlave:
		return runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
	case mount.PropagationPrivate, mount.PropagationRPrivate:
	}
	return runtimeapi.MountPropagation_PROPAGATION_PRIVATE
}

// resources returns the limits of a container as the CRI counts them.
func resources(h *container.HostConfig) *runtimeapi.LinuxContainerResources {
	return &runtimeapi.LinuxContainerResources{
		CpuPeriod: h.CPUPeriod, CpuQuota: h.CPUQuota, CpuShares: h.CPUShares, MemoryLimitInBytes: h.Memory,
		MemorySwapLimitInBytes: h.MemorySwap, OomScoreAdj: int64(h.OomScoreAdj), CpusetCpus: h.CpusetCpus,
		CpusetMems: h.CpusetMems,
	}
}

// stages returns the events of the CRI for the change of a record. before is nil for a new container, after for a
// removed one. A container that started and ended since the last look has both events.
func stages(before, after *Record) (events []runtimeapi.ContainerEventType) {
	if before == nil && after != nil {
		events = append(events, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
	}
	started := func(r *Record) int64 {
		if r == nil {
			return 0
		}
		return r.Times.Started
	}
	exited := before != nil && before.Exited()
	if after != nil && started(after) > started(before) {
		events = append(events, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
		exited = false
	}
	if !exited && (after != nil && after.Exited() || after == nil && before != nil && before.Running()) {
		events = append(events, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
	}
	if after == nil && before != nil {
		events = append(events, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
	}
	return events
}

// stale reports whether a container must be inspected again after a list: it is unknown, its state has changed, or it
// can have changed without a change of its state.
func stale(known *Record, listed *container.Summary) bool {
	if known == nil || !known.Exited() {
		return true
	}
	return listed.State != container.StateExited && listed.State != container.StateDead
}
