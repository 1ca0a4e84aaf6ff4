package briefspec

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	containers "github.com/containerd/containerd/api/services/containers/v1"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/containerd/v2/plugins/services"
	"github.com/containerd/plugin"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/runtime/replace"
)

// Register makes containerd's service of containers give brief specifications. Call it once, before containerd starts.
func Register() {
	replace.Plugin(plugins.ServicePlugin, services.ContainersService,
		func(ic *plugin.InitContext, stock replace.Init) (any, error) {
			instance, err := stock(ic)
			if err != nil {
				return nil, err
			}
			client, ok := instance.(containers.ContainersClient)
			if !ok {
				return nil, fmt.Errorf("containerd's service of containers has the unexpected type %T", instance)
			}
			return service{client}, nil
		})
}

type requestKey struct{}

// request is what a call of the CRI needs.
type request struct {
	// all says that it needs whole specifications. Otherwise it needs only that of the container with this ID.
	all bool
	id  string
}

// Context returns the context for a call of the CRI. In it, the calls that start and end containers get only the
// specifications that they need. The others they read for events.
func Context(ctx context.Context, req any) context.Context {
	needs := request{all: true}
	switch r := req.(type) {
	case *runtimeapi.StartContainerRequest:
		needs = request{id: r.GetContainerId()}
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
type service struct{ containers.ContainersClient }

// Get implements containers.ContainersClient.
func (s service) Get(ctx context.Context, r *containers.GetContainerRequest,
	opts ...grpc.CallOption) (*containers.GetContainerResponse, error) {
	response, err := s.ContainersClient.Get(ctx, r, opts...)
	if err != nil || !brief(ctx, r.GetID()) {
		return response, err
	}
	if short := shorten(response.GetContainer().GetSpec()); short != nil {
		response.Container.Spec = short
	}
	return response, nil
}

// Update implements containers.ContainersClient. A client that changes a container writes back all that it has read. A
// brief specification does not replace the whole one.
func (s service) Update(ctx context.Context, r *containers.UpdateContainerRequest,
	opts ...grpc.CallOption) (*containers.UpdateContainerResponse, error) {
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
