package cri

import (
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestCheckAnswer(t *testing.T) {
	meta := &runtimeapi.PodSandboxMetadata{Name: "n", Namespace: "ns", Uid: "u"}
	container := func(edit func(*runtimeapi.ContainerStatus)) *runtimeapi.ContainerStatusResponse {
		s := &runtimeapi.ContainerStatus{
			Id: "c", Metadata: &runtimeapi.ContainerMetadata{Name: "n"}, CreatedAt: 1,
			Image: &runtimeapi.ImageSpec{Image: "i"}, ImageRef: "r",
		}
		edit(s)
		return &runtimeapi.ContainerStatusResponse{Status: s}
	}
	for _, test := range []struct {
		name   string
		answer any
		want   string // the missing field; "" for a complete answer
	}{
		{"sandbox id", &runtimeapi.RunPodSandboxResponse{PodSandboxId: "s"}, ""},
		{"no sandbox id", &runtimeapi.RunPodSandboxResponse{}, "PodSandboxId"},
		{"no container id", &runtimeapi.CreateContainerResponse{}, "ContainerId"},
		{"no image ref", &runtimeapi.PullImageResponse{}, "ImageRef"},
		{"unknown image", &runtimeapi.ImageStatusResponse{}, ""},
		{"image without id", &runtimeapi.ImageStatusResponse{Image: &runtimeapi.Image{Size: 1}}, "Image.Id"},
		{"image without size", &runtimeapi.ImageStatusResponse{Image: &runtimeapi.Image{Id: "i"}}, "Image.Size"},
		{"no url", &runtimeapi.ExecResponse{}, "Url"},
		{"version without name", &runtimeapi.VersionResponse{Version: "0.1.0"}, "RuntimeName"},
		{"status of nothing", &runtimeapi.StatusResponse{}, "condition RuntimeReady"},
		{"status without network", &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{
			Conditions: []*runtimeapi.RuntimeCondition{{Type: runtimeapi.RuntimeReady}, {Type: "Other"}}}},
			"condition NetworkReady"},
		{"no sandbox status", &runtimeapi.PodSandboxStatusResponse{}, "Status"},
		{"sandbox without metadata",
			&runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{Id: "s"}}, "Status.Metadata"},
		{"sandbox without time",
			&runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{Id: "s", Metadata: meta}},
			"Status.CreatedAt"},
		{"container", container(func(*runtimeapi.ContainerStatus) {}), ""},
		{"no container status", &runtimeapi.ContainerStatusResponse{}, "Status"},
		{"container without metadata", container(func(s *runtimeapi.ContainerStatus) { s.Metadata = nil }),
			"Status.Metadata"},
		{"container without image", container(func(s *runtimeapi.ContainerStatus) { s.Image = nil }), "Status.Image"},
		{"container without image ref", container(func(s *runtimeapi.ContainerStatus) { s.ImageRef = "" }),
			"Status.ImageRef"},
		{"list", &runtimeapi.ListContainersResponse{}, ""},
	} {
		got := ""
		if err := checkAnswer(test.answer); err != nil {
			got = err.Error()
		}
		want := test.want
		if want != "" {
			want = "runtime answered success without " + want
		}
		if got != want {
			t.Errorf("%s: %q, want %q", test.name, got, want)
		}
	}
}
