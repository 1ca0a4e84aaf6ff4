package sandbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"

	"github.com/moby/moby/client"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/lock"
	"github.com/berth-run/berth/internal/docker"
	"github.com/berth-run/berth/internal/docker/dockershim/create"
	"github.com/berth-run/berth/internal/docker/dockershim/index"
	"github.com/berth-run/berth/internal/docker/dockershim/translate"
)

// Network is the pod network.
type Network interface {
	Start(ctx context.Context, id string, pid int, config *runtimeapi.PodSandboxConfig) error
	Stop(ctx context.Context, id string) error
	Addresses(id string, pid int) []netip.Addr
	Namespace(id string) string
	// Abandoned reports whether a sandbox is attached to networks and its network namespace is gone.
	Abandoned(id string) bool
	Sweep(ctx context.Context, live map[string]string) error
}

// Engine has the properties of the Engine.
type Engine interface {
	Facts(ctx context.Context) (translate.Facts, error)
}

// Image is the image of pause containers.
type Image interface {
	Name() string
	Ensure(ctx context.Context) error
}

// Containers stops and removes containers of pods.
type Containers interface {
	Kill(ctx context.Context, c *index.Record) error
	Remove(ctx context.Context, c *index.Record) error
	Statuses(ctx context.Context, sandbox string) []*runtimeapi.ContainerStatus
}

// Parts are the parts that a Service uses. All but Checkpoints are required.
type Parts struct {
	Client     *docker.Client
	Index      *index.Index
	Network    Network
	Engine     Engine
	Image      Image
	Containers Containers
	// Checkpoints are the files of cri-dockerd.
	Checkpoints Checkpoints
	Log         *slog.Logger
}

// Service answers the calls of the CRI for sandboxes.
type Service struct {
	Parts
	// names has a lock for each name of a sandbox, ids one for each ID.
	names, ids lock.Keyed
}

// New allocates a service.
func New(p Parts) *Service { return &Service{Parts: p} }

// RunPodSandbox implements the CRI. A second call with the same request returns the sandbox of the first. A sandbox
// that could not start is removed.
func (s *Service) RunPodSandbox(ctx context.Context, r *runtimeapi.RunPodSandboxRequest) (
	*runtimeapi.RunPodSandboxResponse, error) {
	if err := s.Index.Synced(); err != nil {
		return nil, err
	}
	if r.GetConfig().GetMetadata() == nil {
		return nil, status.Error(codes.InvalidArgument, "the sandbox has no metadata")
	}
	facts, err := s.Engine.Facts(ctx)
	if err != nil {
		return nil, err
	}
	seccomp, err := create.Profile(r.GetConfig().GetLinux().GetSecurityContext().GetSeccomp())
	if err != nil {
		return nil, err
	}
	options, err := facts.Sandbox(r, s.Image.Name(), seccomp)
	if err != nil {
		return nil, err
	}
	unlock, err := s.names.Lock(ctx, options.Name)
	if err != nil {
		return nil, docker.Error(err)
	}
	defer unlock()
	// The index hides the sandbox until it is ready.
	release := s.Index.Hold(options.Name)
	id, err := s.run(ctx, r.GetConfig(), options)
	release()
	if err != nil {
		return nil, err
	}
	if _, err := s.Index.Refresh(ctx, id); err != nil {
		return nil, err
	}
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: id}, nil
}

// run makes a sandbox, or returns the one that an earlier call has made.
func (s *Service) run(ctx context.Context, config *runtimeapi.PodSandboxConfig,
	o client.ContainerCreateOptions) (id string, err error) {
	judge := judge{s}
	id, found, err := create.Container(ctx, s.Client, s.Index, o, judge)
	if docker.IsNotFound(err) { // the image
		if err = s.Image.Ensure(ctx); err == nil {
			id, found, err = create.Container(ctx, s.Client, s.Index, o, judge)
		}
	}
	if err != nil || found {
		return id, err
	}
	if err = s.start(ctx, id, config); err == nil {
		return id, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUp)
	defer cancel()
	if failed := s.undo(ctx, id); failed != nil {
		s.Log.Warn("cannot remove a sandbox that did not start, retrying when its pod is removed", "sandbox", id,
			"err", failed)
	}
	return "", err
}

// judge judges the sandboxes whose names are in use.
type judge struct{ *Service }

// Usable implements create.Judge.
func (j judge) Usable(c *index.Record) bool { return j.ready(c) }

// Remove implements create.Judge.
func (j judge) Remove(ctx context.Context, c *index.Record) error { return j.undo(ctx, c.ID) }

func (s *Service) start(ctx context.Context, id string, config *runtimeapi.PodSandboxConfig) error {
	if _, err := s.Client.ContainerStart(ctx, id, client.ContainerStartOptions{}); err != nil {
		return docker.Error(err)
	}
	found, err := s.Client.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
	if err != nil {
		return docker.Error(err)
	}
	if err := writeResolvConf(found.Container.ResolvConfPath, config.GetDnsConfig()); err != nil {
		return err
	}
	if found.Container.HostConfig.NetworkMode == host {
		return nil
	}
	pid := found.Container.State.Pid
	if pid == 0 {
		return fmt.Errorf("the pause container of sandbox %s has ended with code %d", id,
			found.Container.State.ExitCode)
	}
	return s.Network.Start(ctx, id, pid, config)
}

// undo removes a sandbox that did not start.
func (s *Service) undo(ctx context.Context, id string) error {
	if err := s.Network.Stop(ctx, id); err != nil {
		return err
	}
	_, err := s.Client.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	if docker.IsNotFound(err) {
		return nil
	}
	return docker.Error(err)
}

// StopPodSandbox implements the CRI. It ends all containers of the pod without a grace period, also containers with a
// PID namespace of their own. For a stopped or unknown sandbox it removes the rest of its network.
func (s *Service) StopPodSandbox(ctx context.Context, r *runtimeapi.StopPodSandboxRequest) (
	*runtimeapi.StopPodSandboxResponse, error) {
	unlock, err := s.ids.Lock(ctx, r.GetPodSandboxId())
	if err != nil {
		return nil, docker.Error(err)
	}
	defer unlock()
	if err := s.stop(ctx, r.GetPodSandboxId()); err != nil {
		return nil, err
	}
	return &runtimeapi.StopPodSandboxResponse{}, nil
}

func (s *Service) stop(ctx context.Context, id string) error {
	sandbox, err := s.Index.Sandbox(id)
	if err != nil && status.Code(err) != codes.NotFound {
		return err
	}
	for c := range s.Index.Of(id) {
		if err := s.Containers.Kill(ctx, c); err != nil {
			return err
		}
	}
	if err := s.Network.Stop(ctx, id); err != nil {
		return err
	}
	if sandbox == nil {
		return nil
	}
	return s.Containers.Kill(ctx, sandbox)
}

// RemovePodSandbox implements the CRI.
func (s *Service) RemovePodSandbox(ctx context.Context, r *runtimeapi.RemovePodSandboxRequest) (
	*runtimeapi.RemovePodSandboxResponse, error) {
	id := r.GetPodSandboxId()
	unlock, err := s.ids.Lock(ctx, id)
	if err != nil {
		return nil, docker.Error(err)
	}
	defer unlock()
	if err := s.stop(ctx, id); err != nil {
		return nil, err
	}
	for c := range s.Index.Of(id) {
		if err := s.Containers.Remove(ctx, c); err != nil {
			return nil, err
		}
	}
	if sandbox, err := s.Index.Sandbox(id); err == nil {
		if err := s.Containers.Remove(ctx, sandbox); err != nil {
			return nil, err
		}
	}
	return &runtimeapi.RemovePodSandboxResponse{}, s.Checkpoints.remove(id)
}

// UpdatePodSandboxResources implements the CRI. A pod's limits apply to its cgroup, and the caller sets them there. The
// pause container keeps its own limits.
func (s *Service) UpdatePodSandboxResources(_ context.Context, r *runtimeapi.UpdatePodSandboxResourcesRequest) (
	*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	if _, err := s.Index.Sandbox(r.GetPodSandboxId()); err != nil {
		return nil, err
	}
	return &runtimeapi.UpdatePodSandboxResourcesResponse{}, nil
}

// Sweep removes the networks of sandboxes that the Engine does not have any more. Call it while no sandbox starts.
func (s *Service) Sweep(ctx context.Context) error {
	live := map[string]string{}
	for c := range s.Index.All(true) {
		path := ""
		if c.Running() && !c.HostNetwork() {
			path = s.Network.Namespace(c.ID)
		}
		live[c.ID] = path
	}
	return errors.Join(s.Network.Sweep(ctx, live), s.sweepCheckpoints(ctx, live))
}
