package fake

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// sandbox is a pod sandbox. pods.mu guards it.
type sandbox struct {
	id      string
	config  *runtimeapi.PodSandboxConfig
	handler string
	created int64
	ready   bool
	ip      string
}

func (s *sandbox) state() runtimeapi.PodSandboxState {
	if s.ready {
		return runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return runtimeapi.PodSandboxState_SANDBOX_NOTREADY
}

func (s *sandbox) status() *runtimeapi.PodSandboxStatus {
	return &runtimeapi.PodSandboxStatus{
		Id: s.id, Metadata: s.config.Metadata, State: s.state(), CreatedAt: s.created,
		Network: &runtimeapi.PodSandboxNetworkStatus{Ip: s.ip},
		Linux:   &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: s.namespaces()}},
		Labels:  maps.Clone(s.config.Labels), Annotations: maps.Clone(s.config.Annotations), RuntimeHandler: s.handler,
	}
}

func (s *sandbox) namespaces() *runtimeapi.NamespaceOption {
	return s.config.GetLinux().GetSecurityContext().GetNamespaceOptions()
}

// withSandbox answers a call about a sandbox while it holds the lock of p. An unknown sandbox is an error.
func withSandbox[R any](p *pods, id string, answer func(*sandbox) (*R, error)) (*R, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.sandbox(id)
	if s == nil {
		return nil, notFound("sandbox", id)
	}
	return answer(s)
}

func (r *runtimeServer) RunPodSandbox(_ context.Context,
	req *runtimeapi.RunPodSandboxRequest) (*runtimeapi.RunPodSandboxResponse, error) {
	r.pods.mu.Lock()
	defer r.pods.mu.Unlock()
	if req.GetConfig().GetMetadata() == nil {
		return nil, status.Error(codes.InvalidArgument, "sandbox config has no metadata")
	}
	for _, s := range r.pods.sandboxes {
		if proto.Equal(s.config.Metadata, req.Config.Metadata) {
			return nil, fmt.Errorf("name of sandbox %s is reserved for %s", req.Config.Metadata, s.id)
		}
	}
	s := &sandbox{
		id: r.pods.nextID("sandbox"), config: req.Config, handler: req.RuntimeHandler,
		created: time.Now().UnixNano(), ready: true,
	}
	if s.namespaces().GetNetwork() != runtimeapi.NamespaceMode_NODE {
		s.ip = fmt.Sprintf("10.88.%d.%d", r.pods.created>>8&0xff, r.pods.created&0xff)
	}
	r.pods.sandboxes = append(r.pods.sandboxes, s)
	r.pods.publish(runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT, s.id, s)
	r.pods.publish(runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT, s.id, s)
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: s.id}, nil
}

func (r *runtimeServer) StopPodSandbox(_ context.Context,
	req *runtimeapi.StopPodSandboxRequest) (*runtimeapi.StopPodSandboxResponse, error) {
	r.pods.mu.Lock()
	defer r.pods.mu.Unlock()
	if s := r.pods.sandbox(req.PodSandboxId); s != nil {
		for _, c := range r.pods.containers {
			if c.sandbox == s {
				r.pods.exit(c, killed, "")
			}
		}
		r.pods.stop(s)
	}
	return &runtimeapi.StopPodSandboxResponse{}, nil
}

func (r *runtimeServer) RemovePodSandbox(_ context.Context,
	req *runtimeapi.RemovePodSandboxRequest) (*runtimeapi.RemovePodSandboxResponse, error) {
	r.pods.mu.Lock()
	defer r.pods.mu.Unlock()
	s := r.pods.sandbox(req.PodSandboxId)
	if s == nil {
		return &runtimeapi.RemovePodSandboxResponse{}, nil
	}
	for _, c := range slices.Clone(r.pods.containers) {
		if c.sandbox == s {
			r.pods.remove(c)
		}
	}
	r.pods.stop(s)
	r.pods.sandboxes = slices.DeleteFunc(r.pods.sandboxes, func(have *sandbox) bool { return have == s })
	r.pods.publish(runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT, s.id, s)
	return &runtimeapi.RemovePodSandboxResponse{}, nil
}

func (r *runtimeServer) PodSandboxStatus(_ context.Context,
	req *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	return withSandbox(r.pods, req.PodSandboxId, func(s *sandbox) (*runtimeapi.PodSandboxStatusResponse, error) {
		return &runtimeapi.PodSandboxStatusResponse{Status: s.status()}, nil
	})
}

func (r *runtimeServer) ListPodSandbox(_ context.Context,
	req *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	r.pods.mu.Lock()
	defer r.pods.mu.Unlock()
	want, resp := req.GetFilter(), &runtimeapi.ListPodSandboxResponse{}
	for _, s := range r.pods.sandboxes {
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

func (r *runtimeServer) UpdatePodSandboxResources(_ context.Context,
	req *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	type response = runtimeapi.UpdatePodSandboxResourcesResponse
	return withSandbox(r.pods, req.PodSandboxId, func(*sandbox) (*response, error) {
		return &response{}, nil
	})
}
