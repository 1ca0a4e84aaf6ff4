package cri

import (
	"math"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestLimit(t *testing.T) {
	for _, test := range []struct {
		name    string
		request any
		want    time.Duration
	}{
		{"version", &runtimeapi.VersionRequest{}, 10 * time.Second},
		{"status", &runtimeapi.StatusRequest{}, 10 * time.Second},
		{"run sandbox", &runtimeapi.RunPodSandboxRequest{}, 4 * time.Minute},
		{"stop sandbox", &runtimeapi.StopPodSandboxRequest{}, 2 * time.Minute},
		{"create container", &runtimeapi.CreateContainerRequest{}, 2 * time.Minute},
		{"stop with grace", &runtimeapi.StopContainerRequest{Timeout: 30}, 150 * time.Second},
		{"stop with absurd grace", &runtimeapi.StopContainerRequest{Timeout: math.MaxInt64},
			2*time.Minute + math.MaxInt64/time.Second/2*time.Second},
		{"exec with timeout", &runtimeapi.ExecSyncRequest{Timeout: 1}, 121 * time.Second},
		{"exec without timeout", &runtimeapi.ExecSyncRequest{}, 62 * time.Minute},
		{"exec with negative timeout", &runtimeapi.ExecSyncRequest{Timeout: -1}, 62 * time.Minute},
		{"short checkpoint", &runtimeapi.CheckpointContainerRequest{Timeout: 1}, 2 * time.Minute},
		{"long checkpoint", &runtimeapi.CheckpointContainerRequest{Timeout: 600}, 10 * time.Minute},
		{"pull", &runtimeapi.PullImageRequest{}, time.Hour},
		{"events", &runtimeapi.GetEventsRequest{}, 0},
	} {
		if got := limit(test.request, 2*time.Minute); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
	if got := limit(&runtimeapi.StatusRequest{}, 3*time.Second); got != 3*time.Second {
		t.Errorf("status with a request timeout of 3 s: %s", got)
	}
}

func TestOperationIsTheKubelets(t *testing.T) {
	for call, want := range map[string]string{
		"Version":                  "version",
		"RunPodSandbox":            "run_podsandbox",
		"ListPodSandbox":           "list_podsandbox",
		"PodSandboxStatus":         "podsandbox_status",
		"ListPodSandboxStats":      "list_podsandbox_stats",
		"CreateContainer":          "create_container",
		"UpdateContainerResources": "update_container",
		"ReopenContainerLog":       "reopen_container_log",
		"ExecSync":                 "exec_sync",
		"PortForward":              "port_forward",
		"ImageFsInfo":              "image_fs_info",
		"PullImage":                "pull_image",
		"GetContainerEvents":       "get_container_events",
	} {
		if got := operation(call); got != want {
			t.Errorf("operation of %s is %q, want %q", call, got, want)
		}
	}
}
