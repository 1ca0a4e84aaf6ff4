package logpath

import (
	"context"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/logfile"
)

// plugin answers with one container.
type plugin struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	status *runtimeapi.ContainerStatus
}

// ContainerStatus implements runtimeapi.RuntimeServiceServer.
func (p plugin) ContainerStatus(context.Context,
	*runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	return &runtimeapi.ContainerStatusResponse{Status: p.status}, nil
}

// PodSandboxStatus implements runtimeapi.RuntimeServiceServer. The ID of a sandbox is its handler.
func (plugin) PodSandboxStatus(_ context.Context,
	req *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	return &runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{
		RuntimeHandler: req.GetPodSandboxId()}}, nil
}

func create(dir, path string, annotations map[string]string) *runtimeapi.CreateContainerRequest {
	return &runtimeapi.CreateContainerRequest{
		SandboxConfig: &runtimeapi.PodSandboxConfig{LogDirectory: dir},
		Config:        &runtimeapi.ContainerConfig{LogPath: path, Annotations: annotations},
	}
}

// The plugin gets the path in an annotation, and the caller gets it back where it was. A caller's annotation is
// removed.
func TestPathOfLog(t *testing.T) {
	p := Paths{CRI: plugin{}}
	foreign := map[string]string{logfile.Annotation: "/etc/shadow"}
	tests := []struct {
		name      string
		req       *runtimeapi.CreateContainerRequest
		left, log string
	}{
		{"log", create("/logs/pod", "c/0.log", nil), "", "/logs/pod/c/0.log"},
		{"annotation of the caller", create("/logs", "0.log", foreign), "", "/logs/0.log"},
		{"no directory", create("", "0.log", foreign), "0.log", ""},
		{"no path", create("/logs", "", map[string]string{logfile.Annotation: "/etc/shadow"}), "", ""},
	}
	for _, tt := range tests {
		if err := p.Before(t.Context(), tt.req); err != nil {
			t.Error(err)
		}
		config := tt.req.Config
		if config.LogPath != tt.left || config.Annotations[logfile.Annotation] != tt.log {
			t.Errorf("%s: the plugin gets %v", tt.name, config)
		}
		answer := &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{
			Annotations: config.Annotations}}
		if err := p.After(t.Context(), nil, answer); err != nil || answer.Status.LogPath != tt.log {
			t.Errorf("%s: the caller gets %q, %v", tt.name, answer.Status.LogPath, err)
		}
		list := &runtimeapi.ListContainersResponse{Containers: []*runtimeapi.Container{{
			Annotations: config.Annotations}}}
		if err := p.After(t.Context(), nil, list); err != nil {
			t.Error(err)
		}
		if answer.Status.Annotations[logfile.Annotation]+list.Containers[0].Annotations[logfile.Annotation] != "" {
			t.Errorf("%s: the caller sees the annotation", tt.name)
		}
		if config.Annotations[logfile.Annotation] != tt.log {
			t.Errorf("%s: the plugin's own annotations have changed", tt.name)
		}
	}
	req := create("/logs", "0.log", nil)
	if err := (Paths{}).Before(t.Context(), req); err != nil || req.Config.LogPath != "0.log" {
		t.Errorf("the zero value has changed a call: %v, %v", req, err)
	}
}

// The plugin itself writes the logs of containers whose shims write none.
func TestPathOfLogStaysForOtherShims(t *testing.T) {
	p := Paths{CRI: plugin{}, Others: []string{"kata"}}
	for sandbox, want := range map[string]string{"kata": "0.log", "runc": ""} {
		req := create("/logs", "0.log", nil)
		req.PodSandboxId = sandbox
		if err := p.Before(t.Context(), req); err != nil || req.Config.LogPath != want {
			t.Errorf("handler %s: the plugin gets the log %q, %v, want %q", sandbox, req.Config.LogPath, err, want)
		}
	}
}

// After the call there is a file. The shim finds it with its next line.
func TestReopenCreatesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	p := Paths{CRI: plugin{status: &runtimeapi.ContainerStatus{
		Annotations: map[string]string{logfile.Annotation: path}}}}
	req, answer := &runtimeapi.ReopenContainerLogRequest{}, &runtimeapi.ReopenContainerLogResponse{}
	if err := p.After(t.Context(), req, answer); err != nil {
		t.Fatal(err)
	}
	if files, _ := filepath.Glob(path); len(files) != 1 {
		t.Error("no file")
	}
	other := Paths{CRI: plugin{status: &runtimeapi.ContainerStatus{}}} // the plugin writes the log
	if err := other.After(t.Context(), req, answer); err != nil {
		t.Error(err)
	}
}

type sent struct {
	grpc.ServerStream
	last any
}

// SendMsg implements grpc.ServerStream.
func (s *sent) SendMsg(m any) error {
	s.last = m
	return nil
}

func TestEventsHavePaths(t *testing.T) {
	var s sent
	status := &runtimeapi.ContainerStatus{Annotations: map[string]string{logfile.Annotation: "/logs/0.log"}}
	event := &runtimeapi.ContainerEventResponse{ContainersStatuses: []*runtimeapi.ContainerStatus{status}}
	if err := (Events{&s}).SendMsg(event); err != nil {
		t.Fatal(err)
	}
	got, ok := s.last.(*runtimeapi.ContainerEventResponse)
	if !ok || got.ContainersStatuses[0].LogPath != "/logs/0.log" || status.LogPath != "" {
		t.Errorf("sent %v, and the event is %v", s.last, event)
	}
}
