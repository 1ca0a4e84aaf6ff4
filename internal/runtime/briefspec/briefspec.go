package briefspec

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"sync"

	containers "github.com/containerd/containerd/api/services/containers/v1"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/containerd/v2/plugins/services"
	"github.com/containerd/plugin"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/runtime/replace"
)

// Register makes containerd's service of containers give brief specifications. Call it once, before containerd starts.
func Register() {
	replace.Plugin(plugins.ServicePlugin, services.ContainersService, nil,
		func(_ *plugin.InitContext, client containers.ContainersClient) (any, error) {
			return newService(client), nil
		})
}

type requestKey struct{}

// request is what a call of the CRI needs.
type request struct {
	// all says that the call needs whole specifications, of all containers. Otherwise it needs only the
	// specification of the container id.
	all bool
	id  string
}

// Context returns the context for a call of the CRI. In it, the calls that start, report and end containers get only
// the specifications that they need. The others they read for events.
func Context(ctx context.Context, req any) context.Context {
	needs := request{all: true}
	switch r := req.(type) {
	case *runtimeapi.StartContainerRequest:
		needs = request{id: r.GetContainerId()}
	case *runtimeapi.ContainerStatusRequest:
		needs = request{all: r.GetVerbose()}
	case *runtimeapi.CreateContainerRequest, *runtimeapi.StopContainerRequest, *runtimeapi.RemoveContainerRequest,
		*runtimeapi.StopPodSandboxRequest, *runtimeapi.RemovePodSandboxRequest:
		needs = request{}
	}
	return context.WithValue(ctx, requestKey{}, needs)
}

// brief reports whether a reader of a container needs only the user of its specification. Outside of calls, the CRI
// plugin handles the end of a container within a time limit. NRI reads specifications without one.
func brief(ctx context.Context, id string) bool {
	if needs, ok := ctx.Value(requestKey{}).(request); ok {
		return !needs.all && needs.id != id
	}
	_, limited := ctx.Deadline()
	return limited
}

// service is containerd's service of containers.
type service struct {
	containers.ContainersClient
	known *known
}

func newService(client containers.ContainersClient) service { return service{client, &known{}} }

// known has containers with brief specifications, by namespace and ID. Several readers get the same one, and must not
// change it.
type known struct {
	containers sync.Map
	// mu is locked for writing while a container changes, so that a reader does not add what it has read before.
	mu sync.RWMutex
}

func key(ctx context.Context, id string) string {
	namespace, _ := namespaces.Namespace(ctx)
	return namespace + "/" + id
}

// Get implements containers.ContainersClient.
func (s service) Get(ctx context.Context, r *containers.GetContainerRequest,
	opts ...grpc.CallOption) (*containers.GetContainerResponse, error) {
	if !brief(ctx, r.GetID()) {
		return s.ContainersClient.Get(ctx, r, opts...)
	}
	key := key(ctx, r.GetID())
	if value, ok := s.known.containers.Load(key); ok {
		container, _ := value.(*containers.Container)
		return &containers.GetContainerResponse{Container: container}, nil
	}
	s.known.mu.RLock()
	defer s.known.mu.RUnlock()
	response, err := s.ContainersClient.Get(ctx, r, opts...)
	if err != nil {
		return nil, err
	}
	if short := shorten(response.GetContainer().GetSpec()); short != nil {
		response.Container.Spec = short
		s.known.containers.Store(key, response.GetContainer())
	}
	return response, nil
}

// Delete implements containers.ContainersClient.
func (s service) Delete(ctx context.Context, r *containers.DeleteContainerRequest,
	opts ...grpc.CallOption) (*emptypb.Empty, error) {
	s.known.mu.Lock()
	defer s.known.mu.Unlock()
	defer s.known.containers.Delete(key(ctx, r.GetID()))
	return s.ContainersClient.Delete(ctx, r, opts...)
}

// Update implements containers.ContainersClient. A client that changes a container writes back all that it has read. A
// brief specification does not replace the whole one.
func (s service) Update(ctx context.Context, r *containers.UpdateContainerRequest,
	opts ...grpc.CallOption) (*containers.UpdateContainerResponse, error) {
	s.known.mu.Lock()
	defer s.known.mu.Unlock()
	defer s.known.containers.Delete(key(ctx, r.GetContainer().GetID()))
	if paths := r.GetUpdateMask().GetPaths(); len(paths) == 0 || slices.Contains(paths, "spec") {
		now, err := s.ContainersClient.Get(ctx, &containers.GetContainerRequest{ID: r.GetContainer().GetID()}, opts...)
		if err != nil {
			return nil, err
		}
		whole := now.GetContainer().GetSpec()
		if bytes.Equal(shorten(whole).GetValue(), r.GetContainer().GetSpec().GetValue()) {
			r.Container.Spec = whole
		}
	}
	return s.ContainersClient.Update(ctx, r, opts...)
}

// user is the part of a specification that has the user.
type user struct {
	Version string `json:"ociVersion"`
	Process struct {
		User specs.User `json:"user"`
	} `json:"process"`
}

// shorten returns a specification with the user alone, or nil if it cannot read the user. It reads no further than the
// user, which is near the beginning.
func shorten(spec *anypb.Any) *anypb.Any {
	short := user{Version: specs.Version}
	d := json.NewDecoder(bytes.NewReader(spec.GetValue()))
	if !enter(d, "process") || !enter(d, "user") || d.Decode(&short.Process.User) != nil {
		return nil
	}
	value, err := json.Marshal(short)
	if err != nil {
		return nil
	}
	return &anypb.Any{TypeUrl: spec.GetTypeUrl(), Value: value}
}

// enter reads an object up to the value of a key. It returns false if there is none.
func enter(d *json.Decoder, key string) bool {
	if token, err := d.Token(); err != nil || token != json.Delim('{') {
		return false
	}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return false
		}
		if token == key {
			return true
		}
		var skipped json.RawMessage
		if d.Decode(&skipped) != nil {
			return false
		}
	}
	return false
}
