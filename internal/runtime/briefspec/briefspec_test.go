package briefspec

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	containers "github.com/containerd/containerd/api/services/containers/v1"
	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// stored is a service with one container.
type stored struct {
	containers.ContainersClient
	container *containers.Container
	read      int // how often
}

func (s *stored) Get(context.Context, *containers.GetContainerRequest,
	...grpc.CallOption) (*containers.GetContainerResponse, error) {
	s.read++
	if s.container == nil {
		return nil, errdefs.ErrNotFound
	}
	return &containers.GetContainerResponse{Container: &containers.Container{
		ID: s.container.ID, Labels: s.container.Labels, Spec: s.container.Spec}}, nil
}

func (s *stored) Update(_ context.Context, r *containers.UpdateContainerRequest,
	_ ...grpc.CallOption) (*containers.UpdateContainerResponse, error) {
	s.container = r.Container
	return &containers.UpdateContainerResponse{Container: r.Container}, nil
}

func (s *stored) Delete(context.Context, *containers.DeleteContainerRequest,
	...grpc.CallOption) (*emptypb.Empty, error) {
	s.container = nil
	return &emptypb.Empty{}, nil
}

func whole() *specs.Spec {
	return &specs.Spec{Version: "1.0.0", Annotations: map[string]string{"key": "value"}, Process: &specs.Process{
		Terminal: true, ConsoleSize: &specs.Box{Height: 1}, Args: []string{"run"},
		User: specs.User{UID: 1000, GID: 3, AdditionalGids: []uint32{3, 4}}}}
}

func encode(t *testing.T, spec any) *anypb.Any {
	t.Helper()
	content, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	return &anypb.Any{TypeUrl: "types.containerd.io/opencontainers/runtime-spec/1/Spec", Value: content}
}

func specOf(ctx context.Context, t *testing.T, s service) specs.Spec {
	t.Helper()
	response, err := s.Get(ctx, &containers.GetContainerRequest{ID: "one"})
	if err != nil {
		t.Fatal(err)
	}
	var spec specs.Spec
	if err := json.Unmarshal(response.Container.Spec.Value, &spec); err != nil {
		t.Fatal(err)
	}
	return spec
}

// Readers get whole specifications, unless they need only the user: for an event.
func TestSpecificationsAreBriefForEvents(t *testing.T) {
	const id = "one"
	limited, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	call := func(req any) context.Context { return Context(limited, req) }
	for name, test := range map[string]struct {
		ctx   context.Context
		brief bool
	}{
		"the end of a container": {limited, true},
		"NRI":                    {t.Context(), false},
		"status of it":           {call(&runtimeapi.ContainerStatusRequest{ContainerId: id}), true},
		"verbose status of it":   {call(&runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: true}), false},
		"command in it":          {call(&runtimeapi.ExecSyncRequest{ContainerId: id}), false},
		"change of it":           {call(&runtimeapi.UpdateContainerResourcesRequest{ContainerId: id}), false},
		"start of it":            {call(&runtimeapi.StartContainerRequest{ContainerId: id}), false},
		"start of another one":   {call(&runtimeapi.StartContainerRequest{ContainerId: "other"}), true},
		"creation":               {call(&runtimeapi.CreateContainerRequest{}), true},
		"removal":                {call(&runtimeapi.RemoveContainerRequest{ContainerId: id}), true},
		"removal of its sandbox": {call(&runtimeapi.RemovePodSandboxRequest{}), true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(&stored{container: &containers.Container{ID: id, Spec: encode(t, whole())}})
			got := specOf(test.ctx, t, s)
			want := *whole()
			if test.brief {
				want = specs.Spec{Version: specs.Version, Process: &specs.Process{User: want.Process.User}}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A specification without a process, and one that is not JSON, stay as they are.
func TestSpecificationWithoutAUser(t *testing.T) {
	for name, value := range map[string]string{
		"no process": `{"ociVersion":"1.0.0","process":null,"hostname":"h"}`,
		"no user":    `{"process":{"args":["run"]}}`,
		"a list":     `[]`,
		"cut short":  `{"process":{"user":{"uid":1`,
		"empty":      ``,
	} {
		t.Run(name, func(t *testing.T) {
			if got := shorten(&anypb.Any{Value: []byte(value)}); got != nil {
				t.Errorf("got %s", got.Value)
			}
		})
	}
}

// A client that has read a brief specification and writes the container back does not shorten what is stored.
func TestBriefSpecificationIsNotStored(t *testing.T) {
	limited, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	for name, mask := range map[string]*fieldmaskpb.FieldMask{
		"all":  nil,
		"spec": {Paths: []string{"labels", "spec"}},
	} {
		t.Run(name, func(t *testing.T) {
			store := &stored{container: &containers.Container{ID: "one", Spec: encode(t, whole())}}
			s := newService(store)
			read, err := s.Get(limited, &containers.GetContainerRequest{ID: "one"})
			if err != nil {
				t.Fatal(err)
			}
			read.Container.Labels = map[string]string{"new": "label"}
			update := &containers.UpdateContainerRequest{Container: read.Container, UpdateMask: mask}
			if _, err := s.Update(limited, update); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(*whole(), specOf(t.Context(), t, s)); diff != "" {
				t.Error(diff)
			}
			if store.container.Labels["new"] != "label" {
				t.Error("the change is not stored")
			}
			other := whole()
			other.Hostname = "other"
			update = &containers.UpdateContainerRequest{Container: &containers.Container{ID: "one",
				Spec: encode(t, other)}}
			if _, err := s.Update(limited, update); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(*other, specOf(t.Context(), t, s)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A brief specification is read once, until the container changes or is deleted.
func TestBriefSpecificationIsReadOnce(t *testing.T) {
	limited, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	store := &stored{container: &containers.Container{ID: "one", Spec: encode(t, whole())}}
	s := newService(store)
	for range 3 {
		specOf(limited, t, s)
	}
	if store.read != 1 {
		t.Errorf("read %d times", store.read)
	}
	other := whole()
	other.Process.User.UID = 7
	update := &containers.UpdateContainerRequest{Container: &containers.Container{ID: "one", Spec: encode(t, other)}}
	if _, err := s.Update(limited, update); err != nil {
		t.Fatal(err)
	}
	if got := specOf(limited, t, s).Process.User.UID; got != 7 {
		t.Errorf("the user after a change is %d", got)
	}
	if _, err := s.Delete(limited, &containers.DeleteContainerRequest{ID: "one"}); err != nil {
		t.Fatal(err)
	}
	_, err := s.Get(limited, &containers.GetContainerRequest{ID: "one"})
	if !errdefs.IsNotFound(err) {
		t.Errorf("a deleted container is read: %v", err)
	}
	s.known.containers.Range(func(key, _ any) bool {
		t.Errorf("%s is kept", key)
		return true
	})
}
