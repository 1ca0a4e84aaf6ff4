package critest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri/critest/script"
)

// runtimeServer is the fake's CRI runtime service. Exec, Attach, PortForward, statistics and checkpoints are not
// implemented.
type runtimeServer struct {
	*Fake
	runtimeapi.UnimplementedRuntimeServiceServer
}

func (r *runtimeServer) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "fake", RuntimeVersion: "1",
		RuntimeApiVersion: "v1"}, nil
}

func (r *runtimeServer) Status(context.Context, *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
		{Type: runtimeapi.RuntimeReady, Status: true}, r.network,
	}}}, nil
}

func (r *runtimeServer) RuntimeConfig(context.Context,
	*runtimeapi.RuntimeConfigRequest) (*runtimeapi.RuntimeConfigResponse, error) {
	return &runtimeapi.RuntimeConfigResponse{
		Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS}}, nil
}

func (r *runtimeServer) UpdateRuntimeConfig(context.Context,
	*runtimeapi.UpdateRuntimeConfigRequest) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	return &runtimeapi.UpdateRuntimeConfigResponse{}, nil
}

func (r *runtimeServer) RunPodSandbox(_ context.Context,
	req *runtimeapi.RunPodSandboxRequest) (*runtimeapi.RunPodSandboxResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if req.GetConfig().GetMetadata() == nil {
		return nil, status.Error(codes.InvalidArgument, "sandbox config has no metadata")
	}
	for _, s := range r.sandboxes {
		if proto.Equal(s.config.Metadata, req.Config.Metadata) {
			return nil, fmt.Errorf("name of sandbox %s is reserved for %s", req.Config.Metadata, s.id)
		}
	}
	s := &sandbox{
		id: r.nextID("sandbox"), config: req.Config, handler: req.RuntimeHandler,
		created: time.Now().UnixNano(), ready: true,
	}
	if s.namespaces().GetNetwork() != runtimeapi.NamespaceMode_NODE {
		s.ip = fmt.Sprintf("10.88.%d.%d", r.created>>8&0xff, r.created&0xff)
	}
	r.sandboxes = append(r.sandboxes, s)
	r.publish(runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT, s.id, s)
	r.publish(runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT, s.id, s)
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: s.id}, nil
}

func (r *runtimeServer) StopPodSandbox(_ context.Context,
	req *runtimeapi.StopPodSandboxRequest) (*runtimeapi.StopPodSandboxResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.sandbox(req.PodSandboxId); s != nil {
		for _, c := range r.containers {
			if c.sandbox == s {
				r.exit(c, killed, "")
			}
		}
		r.stopSandbox(s)
	}
	return &runtimeapi.StopPodSandboxResponse{}, nil
}

func (r *runtimeServer) RemovePodSandbox(_ context.Context,
	req *runtimeapi.RemovePodSandboxRequest) (*runtimeapi.RemovePodSandboxResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sandbox(req.PodSandboxId)
	if s == nil {
		return &runtimeapi.RemovePodSandboxResponse{}, nil
	}
	for _, c := range slices.Clone(r.containers) {
		if c.sandbox == s {
			r.remove(c)
		}
	}
	r.stopSandbox(s)
	r.sandboxes = slices.DeleteFunc(r.sandboxes, func(have *sandbox) bool { return have == s })
	r.publish(runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT, s.id, s)
	return &runtimeapi.RemovePodSandboxResponse{}, nil
}

func (r *runtimeServer) PodSandboxStatus(_ context.Context,
	req *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sandbox(req.PodSandboxId)
	if s == nil {
		return nil, notFound("sandbox", req.PodSandboxId)
	}
	return &runtimeapi.PodSandboxStatusResponse{Status: s.status()}, nil
}

func (r *runtimeServer) ListPodSandbox(_ context.Context,
	req *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	want, resp := req.GetFilter(), &runtimeapi.ListPodSandboxResponse{}
	for _, s := range r.sandboxes {
		if want.GetId() != "" && want.Id != s.id ||
			want.GetState() != nil && want.State.State != s.state() ||
			!selected(s.config.Labels, want.GetLabelSelector()) {
			continue
		}
		resp.Items = append(resp.Items, &runtimeapi.PodSandbox{
			Id: s.id, Metadata: s.config.Metadata, State: s.state(), CreatedAt: s.created,
			Labels: s.config.Labels, Annotations: s.config.Annotations, RuntimeHandler: s.handler,
		})
	}
	return resp, nil
}

func (r *runtimeServer) CreateContainer(_ context.Context,
	req *runtimeapi.CreateContainerRequest) (*runtimeapi.CreateContainerResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sandbox(req.PodSandboxId)
	switch {
	case s == nil:
		return nil, notFound("sandbox", req.PodSandboxId)
	case !s.ready:
		return nil, fmt.Errorf("sandbox %s is not running", s.id)
	case req.GetConfig().GetMetadata() == nil:
		return nil, status.Error(codes.InvalidArgument, "container config has no metadata")
	case r.image(req.Config.Image.GetImage()) == nil:
		return nil, notFound("image", req.Config.Image.GetImage())
	}
	for _, c := range r.containers {
		if c.sandbox == s && proto.Equal(c.config.Metadata, req.Config.Metadata) {
			return nil, fmt.Errorf("name of container %s is reserved for %s", req.Config.Metadata, c.id)
		}
	}
	c := &container{id: r.nextID("container"), sandbox: s, config: req.Config, created: time.Now().UnixNano()}
	if s.config.LogDirectory != "" && req.Config.LogPath != "" {
		c.log = newLogFile(s.config.LogDirectory, req.Config.LogPath)
	}
	r.containers = append(r.containers, c)
	r.publish(runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT, c.id, s)
	return &runtimeapi.CreateContainerResponse{ContainerId: c.id}, nil
}

func (r *runtimeServer) StartContainer(_ context.Context,
	req *runtimeapi.StartContainerRequest) (*runtimeapi.StartContainerResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.container(req.ContainerId)
	switch {
	case c == nil:
		return nil, notFound("container", req.ContainerId)
	case c.state != runtimeapi.ContainerState_CONTAINER_CREATED:
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
		now := time.Now().UnixNano()
		c.state, c.started, c.ended = runtimeapi.ContainerState_CONTAINER_EXITED, now, now
		c.code, c.reason, c.message = 128, "StartError", err.Error()
		return nil, err
	}
	r.start(c, p)
	return &runtimeapi.StartContainerResponse{}, nil
}

func (r *runtimeServer) StopContainer(ctx context.Context,
	req *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
	r.mu.Lock()
	c := r.container(req.ContainerId)
	if c == nil || c.state != runtimeapi.ContainerState_CONTAINER_RUNNING {
		r.mu.Unlock()
		return &runtimeapi.StopContainerResponse{}, nil
	}
	if req.Timeout > 0 && !c.process.IgnoresTerm {
		r.exit(c, c.process.TermCode, "")
	}
	exited := c.exited
	r.mu.Unlock()

	timer := time.NewTimer(time.Duration(req.Timeout) * time.Second)
	defer timer.Stop()
	select {
	case <-exited:
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	case <-timer.C:
		r.mu.Lock()
		defer r.mu.Unlock()
		r.exit(c, killed, "")
	}
	return &runtimeapi.StopContainerResponse{}, nil
}

func (r *runtimeServer) RemoveContainer(_ context.Context,
	req *runtimeapi.RemoveContainerRequest) (*runtimeapi.RemoveContainerResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.container(req.ContainerId); c != nil {
		r.remove(c)
	}
	return &runtimeapi.RemoveContainerResponse{}, nil
}

func (r *runtimeServer) remove(c *container) {
	r.exit(c, killed, "")
	c.log.close()
	r.containers = slices.DeleteFunc(r.containers, func(have *container) bool { return have == c })
	r.publish(runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT, c.id, c.sandbox)
}

func (r *runtimeServer) ListContainers(_ context.Context,
	req *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	want, resp := req.GetFilter(), &runtimeapi.ListContainersResponse{}
	for _, c := range r.containers {
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
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.container(req.ContainerId)
	if c == nil {
		return nil, notFound("container", req.ContainerId)
	}
	return &runtimeapi.ContainerStatusResponse{Status: c.status()}, nil
}

func (r *runtimeServer) UpdateContainerResources(_ context.Context,
	req *runtimeapi.UpdateContainerResourcesRequest) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.container(req.ContainerId)
	if c == nil {
		return nil, notFound("container", req.ContainerId)
	}
	c.config = proto.Clone(c.config).(*runtimeapi.ContainerConfig)
	if c.config.Linux == nil {
		c.config.Linux = &runtimeapi.LinuxContainerConfig{}
	}
	if c.config.Linux.Resources == nil {
		c.config.Linux.Resources = &runtimeapi.LinuxContainerResources{}
	}
	// In CRI an unset field means that the current value stays.
	proto.Merge(c.config.Linux.Resources, req.Linux)
	return &runtimeapi.UpdateContainerResourcesResponse{}, nil
}

func (r *runtimeServer) UpdatePodSandboxResources(_ context.Context,
	req *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sandbox(req.PodSandboxId) == nil {
		return nil, notFound("sandbox", req.PodSandboxId)
	}
	return &runtimeapi.UpdatePodSandboxResourcesResponse{}, nil
}

func (r *runtimeServer) ReopenContainerLog(_ context.Context,
	req *runtimeapi.ReopenContainerLogRequest) (*runtimeapi.ReopenContainerLogResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.container(req.ContainerId)
	switch {
	case c == nil:
		return nil, notFound("container", req.ContainerId)
	case c.state != runtimeapi.ContainerState_CONTAINER_RUNNING:
		return nil, fmt.Errorf("container %s is not running", c.id)
	}
	c.log.close()
	if err := c.log.open(); err != nil {
		return nil, err
	}
	return &runtimeapi.ReopenContainerLogResponse{}, nil
}

func (r *runtimeServer) ExecSync(ctx context.Context, req *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse,
	error) {
	r.mu.Lock()
	c := r.container(req.ContainerId)
	var config *runtimeapi.ContainerConfig
	running := false
	if c != nil {
		config, running = c.config, c.state == runtimeapi.ContainerState_CONTAINER_RUNNING
	}
	r.mu.Unlock()
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

func (r *runtimeServer) GetContainerEvents(_ *runtimeapi.GetEventsRequest,
	out grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse]) error {
	events := make(chan *runtimeapi.ContainerEventResponse, 1000)
	r.mu.Lock()
	r.streams[events] = true
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		delete(r.streams, events)
		r.mu.Unlock()
	}()
	for {
		select {
		case <-out.Context().Done():
			return status.FromContextError(out.Context().Err()).Err()
		case event, ok := <-events:
			if !ok {
				return status.Error(codes.Unavailable, "event stream dropped")
			}
			if err := out.Send(event); err != nil {
				return err
			}
		}
	}
}

func notFound(kind, id string) error {
	return status.Errorf(codes.NotFound, "%s %q: not found", kind, id)
}
