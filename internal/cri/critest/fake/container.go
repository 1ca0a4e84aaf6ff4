package fake

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri/critest/fake/script"
)

// container is a container of a sandbox. pods.mu guards it.
type container struct {
	id      string
	sandbox *sandbox
	config  *runtimeapi.ContainerConfig
	state   runtimeapi.ContainerState
	created int64
	started int64
	ended   int64
	code    int32
	reason  string
	message string

	process *script.Process
	timer   *time.Timer   // until the process acts again
	exited  chan struct{} // closed when the container has exited
	log     *logFile
}

// halt stops the container's process and closes its log. The container keeps its state.
func (c *container) halt() {
	if c.timer != nil {
		c.timer.Stop()
	}
	c.log.close()
}

func (c *container) status() *runtimeapi.ContainerStatus {
	logPath := ""
	if c.log != nil {
		logPath = c.log.path
	}
	return &runtimeapi.ContainerStatus{
		Id: c.id, Metadata: c.config.Metadata, State: c.state,
		CreatedAt: c.created, StartedAt: c.started, FinishedAt: c.ended,
		ExitCode: c.code, Reason: c.reason, Message: c.message,
		Image: c.config.Image, ImageRef: imageID(c.config.Image.GetImage()),
		Labels: maps.Clone(c.config.Labels), Annotations: maps.Clone(c.config.Annotations),
		Mounts: c.config.Mounts, LogPath: logPath,
		Resources: &runtimeapi.ContainerResources{Linux: c.config.GetLinux().GetResources()},
	}
}

// withContainer answers a call about a container while it holds the lock of p. An unknown container is an error.
func withContainer[R any](p *pods, id string, answer func(*container) (*R, error)) (*R, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.container(id)
	if c == nil {
		return nil, notFound("container", id)
	}
	return answer(c)
}

func (r *runtimeServer) CreateContainer(_ context.Context,
	req *runtimeapi.CreateContainerRequest) (*runtimeapi.CreateContainerResponse, error) {
	return withSandbox(r.pods, req.PodSandboxId, func(s *sandbox) (*runtimeapi.CreateContainerResponse, error) {
		switch {
		case !s.ready:
			return nil, fmt.Errorf("sandbox %s is not running", s.id)
		case req.GetConfig().GetMetadata() == nil:
			return nil, status.Error(codes.InvalidArgument, "container config has no metadata")
		case !r.images.contains(req.Config.Image.GetImage()):
			return nil, notFound("image", req.Config.Image.GetImage())
		}
		for _, c := range r.pods.containers {
			if c.sandbox == s && proto.Equal(c.config.Metadata, req.Config.Metadata) {
				return nil, fmt.Errorf("name of container %s is reserved for %s", req.Config.Metadata, c.id)
			}
		}
		c := &container{id: r.pods.nextID("container"), sandbox: s, config: req.Config, created: time.Now().UnixNano()}
		if s.config.LogDirectory != "" && req.Config.LogPath != "" {
			c.log = newLogFile(s.config.LogDirectory, req.Config.LogPath)
		}
		r.pods.containers = append(r.pods.containers, c)
		r.pods.publish(runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT, c.id, s)
		return &runtimeapi.CreateContainerResponse{ContainerId: c.id}, nil
	})
}

func (r *runtimeServer) StartContainer(_ context.Context,
	req *runtimeapi.StartContainerRequest) (*runtimeapi.StartContainerResponse, error) {
	return withContainer(r.pods, req.ContainerId, func(c *container) (*runtimeapi.StartContainerResponse, error) {
		if c.state != runtimeapi.ContainerState_CONTAINER_CREATED {
			return nil, fmt.Errorf("container %s is in state %s", c.id, c.state)
		}
		argv := slices.Concat(c.config.Command, c.config.Args)
		if len(c.config.Command) == 0 {
			argv = slices.Insert(argv, 0, "/workload") // the image's entrypoint
		}
		p, err := script.New(argv, c.config, c.log.stream(runtimeapi.Stdout), c.log.stream(runtimeapi.Stderr))
		if err == nil {
			err = c.log.open()
		}
		if err != nil {
			c.state, c.ended = runtimeapi.ContainerState_CONTAINER_EXITED, time.Now().UnixNano()
			c.code, c.reason, c.message = 128, "StartError", err.Error()
			return nil, err
		}
		r.pods.start(c, p)
		return &runtimeapi.StartContainerResponse{}, nil
	})
}

func (r *runtimeServer) StopContainer(ctx context.Context,
	req *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
	r.pods.mu.Lock()
	c := r.pods.container(req.ContainerId)
	if c == nil || c.state != runtimeapi.ContainerState_CONTAINER_RUNNING {
		r.pods.mu.Unlock()
		return &runtimeapi.StopContainerResponse{}, nil
	}
	if req.Timeout > 0 && !c.process.IgnoresTerm {
		r.pods.exit(c, c.process.TermCode, "")
	}
	exited := c.exited
	r.pods.mu.Unlock()

	timer := time.NewTimer(time.Duration(req.Timeout) * time.Second)
	defer timer.Stop()
	select {
	case <-exited:
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	case <-timer.C:
		r.pods.mu.Lock()
		defer r.pods.mu.Unlock()
		r.pods.exit(c, killed, "")
	}
	return &runtimeapi.StopContainerResponse{}, nil
}

func (r *runtimeServer) RemoveContainer(_ context.Context,
	req *runtimeapi.RemoveContainerRequest) (*runtimeapi.RemoveContainerResponse, error) {
	r.pods.mu.Lock()
	defer r.pods.mu.Unlock()
	if c := r.pods.container(req.ContainerId); c != nil {
		r.pods.remove(c)
	}
	return &runtimeapi.RemoveContainerResponse{}, nil
}

func (r *runtimeServer) ListContainers(_ context.Context,
	req *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	r.pods.mu.Lock()
	defer r.pods.mu.Unlock()
	want, resp := req.GetFilter(), &runtimeapi.ListContainersResponse{}
	for _, c := range r.pods.containers {
		if want.GetId() != "" && want.Id != c.id ||
			want.GetPodSandboxId() != "" && want.PodSandboxId != c.sandbox.id ||
			want.GetState() != nil && want.State.State != c.state ||
			!selected(c.config.Labels, want.GetLabelSelector()) {
			continue
		}
		resp.Containers = append(resp.Containers, &runtimeapi.Container{
			Id: c.id, PodSandboxId: c.sandbox.id, Metadata: c.config.Metadata, Image: c.config.Image,
			ImageRef: imageID(c.config.Image.GetImage()), State: c.state, CreatedAt: c.created,
			Labels: c.config.Labels, Annotations: c.config.Annotations,
		})
	}
	return resp, nil
}

func (r *runtimeServer) ContainerStatus(_ context.Context,
	req *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	return withContainer(r.pods, req.ContainerId, func(c *container) (*runtimeapi.ContainerStatusResponse, error) {
		return &runtimeapi.ContainerStatusResponse{Status: c.status()}, nil
	})
}

func (r *runtimeServer) UpdateContainerResources(_ context.Context,
	req *runtimeapi.UpdateContainerResourcesRequest) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	type response = runtimeapi.UpdateContainerResourcesResponse
	return withContainer(r.pods, req.ContainerId, func(c *container) (*response, error) {
		c.config = proto.Clone(c.config).(*runtimeapi.ContainerConfig)
		if c.config.Linux == nil {
			c.config.Linux = &runtimeapi.LinuxContainerConfig{}
		}
		if c.config.Linux.Resources == nil {
			c.config.Linux.Resources = &runtimeapi.LinuxContainerResources{}
		}
		// In CRI an unset field means that the current value stays.
		proto.Merge(c.config.Linux.Resources, req.Linux)
		return &response{}, nil
	})
}

func (r *runtimeServer) ReopenContainerLog(_ context.Context,
	req *runtimeapi.ReopenContainerLogRequest) (*runtimeapi.ReopenContainerLogResponse, error) {
	return withContainer(r.pods, req.ContainerId, func(c *container) (*runtimeapi.ReopenContainerLogResponse, error) {
		if c.state != runtimeapi.ContainerState_CONTAINER_RUNNING {
			return nil, fmt.Errorf("container %s is not running", c.id)
		}
		c.log.close()
		if err := c.log.open(); err != nil {
			return nil, err
		}
		return &runtimeapi.ReopenContainerLogResponse{}, nil
	})
}

func (r *runtimeServer) ExecSync(ctx context.Context, req *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse,
	error) {
	r.pods.mu.Lock()
	c := r.pods.container(req.ContainerId)
	var config *runtimeapi.ContainerConfig
	running := false
	if c != nil {
		config, running = c.config, c.state == runtimeapi.ContainerState_CONTAINER_RUNNING
	}
	r.pods.mu.Unlock()
	switch {
	case c == nil:
		return nil, notFound("container", req.ContainerId)
	case len(req.Cmd) == 0:
		return nil, status.Error(codes.InvalidArgument, "no command")
	case !running:
		return nil, fmt.Errorf("container %s is not running", req.ContainerId)
	}
	var stdout, stderr bytes.Buffer
	p, err := script.New(req.Cmd, config, &stdout, &stderr)
	if err != nil {
		return nil, err
	}
	if req.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(req.Timeout)*time.Second)
		defer cancel()
	}
	code, ok := p.Finish(ctx)
	if !ok {
		return nil, status.Errorf(codes.DeadlineExceeded, "command %q timed out", req.Cmd)
	}
	return &runtimeapi.ExecSyncResponse{Stdout: stdout.Bytes(), Stderr: stderr.Bytes(), ExitCode: code}, nil
}
