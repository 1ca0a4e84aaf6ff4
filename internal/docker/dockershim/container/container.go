package container

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/moby/moby/client"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/lock"
	"github.com/berth-run/berth/internal/docker"
	"github.com/berth-run/berth/internal/docker/dockershim/checkpoint"
	"github.com/berth-run/berth/internal/docker/dockershim/create"
	"github.com/berth-run/berth/internal/docker/dockershim/index"
	"github.com/berth-run/berth/internal/docker/dockershim/translate"
)

// Engine has the properties of the Engine.
type Engine interface {
	Facts(ctx context.Context) (translate.Facts, error)
	// Root returns the Engine's data root.
	Root(ctx context.Context) (string, error)
}

// Images names the image of a container.
type Images interface {
	// Names returns a tag of an image, empty if it has none, and its digest, or its ID if it has none.
	Names(ctx context.Context, id string) (tag, digest string)
}

// Logs copies the output of containers to their logs.
type Logs interface {
	// Create makes the log of a container that is about to be created.
	Create(path string) error
	// Begin begins to copy the output of a container that is about to start. root is the Engine's data root.
	Begin(c *index.Record, root string)
	// Complete waits until the log of a container that has ended is complete. It gives up after a while.
	Complete(ctx context.Context, c *index.Record)
	// Reopen makes the next line go to a new file.
	Reopen(id string) error
}

// Parts are the parts that a Service uses. All are required.
type Parts struct {
	Client *docker.Client
	Index  *index.Index
	Engine Engine
	Images Images
	Logs   Logs
	Log    *slog.Logger
}

// Service answers the calls of the CRI for containers.
type Service struct {
	Parts
	names lock.Keyed // one for each name of a container
	limit limits
}

// New allocates a service.
func New(p Parts) *Service { return &Service{Parts: p} }

// CreateContainer implements the CRI. A second call with the same request returns the container of the first.
func (s *Service) CreateContainer(ctx context.Context, r *runtimeapi.CreateContainerRequest) (
	*runtimeapi.CreateContainerResponse, error) {
	sandbox, err := s.Index.Sandbox(r.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	if r.GetConfig().GetMetadata() == nil || r.GetConfig().GetImage() == nil {
		return nil, status.Error(codes.InvalidArgument, "the container has no metadata or no image")
	}
	facts, err := s.Engine.Facts(ctx)
	if err != nil {
		return nil, err
	}
	seccomp, err := create.Profile(r.GetConfig().GetLinux().GetSecurityContext().GetSeccomp())
	if err != nil {
		return nil, err
	}
	log := logPath(r)
	o, err := facts.Container(translate.Sandbox{ID: sandbox.ID, Pod: sandbox.Pod, Handler: sandbox.Host.Runtime,
		HostNetwork: sandbox.HostNetwork(), LogPath: log}, r, seccomp)
	if err != nil {
		return nil, err
	}
	if err := makeMissing(translate.MountSources(r.GetConfig().GetMounts())); err != nil {
		return nil, err
	}
	unlock, err := s.names.Lock(ctx, o.Name)
	if err != nil {
		return nil, docker.Error(err)
	}
	defer unlock()
	if log != "" {
		if err := s.Logs.Create(log); err != nil {
			return nil, fmt.Errorf("make log of container: %w", err)
		}
	}
	id, _, err := create.Container(ctx, s.Client, s.Index, o, judge{s})
	if err != nil {
		return nil, err
	}
	if _, err := s.Index.Refresh(ctx, id); err != nil {
		return nil, err
	}
	return &runtimeapi.CreateContainerResponse{ContainerId: id}, nil
}

// judge judges the containers whose names are in use.
type judge struct{ *Service }

// Usable implements create.Judge: a container that has ended does not serve its request again.
func (j judge) Usable(c *index.Record) bool { return !c.Exited() }

// Remove implements create.Judge.
func (j judge) Remove(ctx context.Context, c *index.Record) error { return j.Service.Remove(ctx, c) }

func logPath(r *runtimeapi.CreateContainerRequest) string {
	if r.GetConfig().GetLogPath() == "" {
		return ""
	}
	return filepath.Join(r.GetSandboxConfig().GetLogDirectory(), r.GetConfig().GetLogPath())
}

// makeMissing makes directories that do not exist.
func makeMissing(paths []string) error {
	for _, path := range paths {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := os.MkdirAll(path, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// StartContainer implements the CRI.
func (s *Service) StartContainer(ctx context.Context, r *runtimeapi.StartContainerRequest) (
	*runtimeapi.StartContainerResponse, error) {
	c, err := s.Index.Container(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	if c.State != runtimeapi.ContainerState_CONTAINER_CREATED { // Docker would run an ended one again
		return nil, status.Errorf(codes.FailedPrecondition, "container %s is not in the state created, but %s", c.ID,
			c.State)
	}
	root, err := s.Engine.Root(ctx)
	if err != nil {
		return nil, err
	}
	s.Logs.Begin(c, root)
	_, failed := s.Client.ContainerStart(ctx, c.ID, client.ContainerStartOptions{})
	started, err := s.Index.Refresh(context.WithoutCancel(ctx), c.ID)
	if failed != nil {
		return nil, docker.Error(failed)
	}
	if err != nil {
		return nil, err
	}
	return &runtimeapi.StartContainerResponse{}, s.limit.afterStart(started)
}

// StopContainer implements the CRI. Without a grace period the container gets SIGKILL at once.
func (s *Service) StopContainer(ctx context.Context, r *runtimeapi.StopContainerRequest) (
	*runtimeapi.StopContainerResponse, error) {
	c, err := s.Index.Container(r.GetContainerId())
	if err != nil {
		if status.Code(err) == codes.NotFound { // it is stopped
			return &runtimeapi.StopContainerResponse{}, nil
		}
		return nil, err
	}
	if r.GetTimeout() <= 0 {
		return &runtimeapi.StopContainerResponse{}, s.Kill(ctx, c)
	}
	grace := int(r.GetTimeout())
	_, err = s.Client.ContainerStop(ctx, c.ID, client.ContainerStopOptions{Timeout: &grace})
	if err != nil && !docker.IsNotFound(err) {
		return nil, docker.Error(err)
	}
	_, err = s.Index.Refresh(ctx, c.ID)
	return &runtimeapi.StopContainerResponse{}, err
}

// Kill ends a container or a sandbox at once, and waits for its end.
func (s *Service) Kill(ctx context.Context, c *index.Record) error {
	if !c.Running() {
		return nil
	}
	_, err := s.Client.ContainerKill(ctx, c.ID, client.ContainerKillOptions{Signal: "SIGKILL"})
	now, again := s.Index.Refresh(ctx, c.ID)
	switch {
	case again != nil:
		return again
	case now == nil || !now.Running(): // it has ended by itself, before or after the signal
		return nil
	case err != nil:
		return docker.Error(err)
	}
	return status.Errorf(codes.Unknown, "container %s still runs after SIGKILL", c.ID)
}

// RemoveContainer implements the CRI. It ends a running container. It does nothing for an unknown one.
func (s *Service) RemoveContainer(ctx context.Context, r *runtimeapi.RemoveContainerRequest) (
	*runtimeapi.RemoveContainerResponse, error) {
	c, err := s.Index.Container(r.GetContainerId())
	if status.Code(err) == codes.NotFound {
		return &runtimeapi.RemoveContainerResponse{}, nil
	}
	if err != nil {
		return nil, err
	}
	return &runtimeapi.RemoveContainerResponse{}, s.Remove(ctx, c)
}

// Remove ends and removes a container or a sandbox. It completes the container's log before Docker removes its own
// files.
func (s *Service) Remove(ctx context.Context, c *index.Record) error {
	if err := s.Kill(ctx, c); err != nil {
		return err
	}
	s.Logs.Complete(ctx, c)
	_, err := s.Client.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	if err != nil && !docker.IsNotFound(err) {
		return docker.Error(err)
	}
	s.limit.forget(c.ID)
	_, err = s.Index.Refresh(ctx, c.ID)
	return err
}

// CheckpointContainer implements the CRI.
func (s *Service) CheckpointContainer(ctx context.Context, r *runtimeapi.CheckpointContainerRequest) (
	*runtimeapi.CheckpointContainerResponse, error) {
	c, err := s.Index.Container(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	if !c.Running() {
		return nil, status.Errorf(codes.FailedPrecondition, "container %s does not run", c.ID)
	}
	return &runtimeapi.CheckpointContainerResponse{}, checkpoint.Write(ctx, s.Client, c, s.status(ctx, c),
		r.GetLocation())
}

// ReopenContainerLog implements the CRI.
func (s *Service) ReopenContainerLog(_ context.Context, r *runtimeapi.ReopenContainerLogRequest) (
	*runtimeapi.ReopenContainerLogResponse, error) {
	c, err := s.Index.Container(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	if !c.Running() {
		return nil, status.Errorf(codes.FailedPrecondition, "container %s does not run", c.ID)
	}
	return &runtimeapi.ReopenContainerLogResponse{}, s.Logs.Reopen(c.ID)
}
