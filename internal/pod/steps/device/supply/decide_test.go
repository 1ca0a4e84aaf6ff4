package supply

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/berth-run/berth/internal/node/resource/device"
	"github.com/berth-run/berth/internal/node/resource/topology"
)

func TestCheckRegistration(t *testing.T) {
	tests := []struct {
		version, name, endpoint, want string
	}{
		{"v1beta1", "example.com/gpu", "gpu.sock", ""},
		{"v1beta1", "example.com/gpu", "vendor/gpu.sock", ""},
		{"v1alpha", "example.com/gpu", "gpu.sock",
			`requested API version "v1alpha" is not supported: use one of ["v1beta1"]`},
		{"v1beta1", "gpu", "gpu.sock",
			`the ResourceName "gpu" is invalid: it must be DOMAIN/NAME, outside kubernetes.io`},
		{"v1beta1", "kubernetes.io/gpu", "gpu.sock",
			`the ResourceName "kubernetes.io/gpu" is invalid: it must be DOMAIN/NAME, outside kubernetes.io`},
		{"v1beta1", "requests.example.com/gpu", "gpu.sock",
			`the ResourceName "requests.example.com/gpu" is invalid: it must be DOMAIN/NAME, outside kubernetes.io`},
		{"v1beta1", "example.com/a gpu", "gpu.sock",
			`the ResourceName "example.com/a gpu" is invalid: it must be DOMAIN/NAME, outside kubernetes.io`},
		{"v1beta1", "example.com/gpu", "../gpu.sock",
			`the endpoint "../gpu.sock" is not the name of a socket in the directory of the registration socket`},
		{"v1beta1", "example.com/gpu", "",
			`the endpoint "" is not the name of a socket in the directory of the registration socket`},
	}
	for _, tt := range tests {
		got := ""
		if err := checkRegistration(&pluginapi.RegisterRequest{Version: tt.version, ResourceName: tt.name,
			Endpoint: tt.endpoint}); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%+v: got %s", tt, got)
		}
	}
}

func TestDevicesOf(t *testing.T) {
	on := func(ids ...int64) *pluginapi.TopologyInfo {
		info := &pluginapi.TopologyInfo{}
		for _, id := range ids {
			info.Nodes = append(info.Nodes, &pluginapi.NUMANode{ID: id})
		}
		return info
	}
	got := devicesOf([]*pluginapi.Device{
		{ID: "c", Health: "Healthy", Topology: on(0, 1, 7, -1, 99)},
		{ID: "a", Health: "Unhealthy", Topology: on(1)},
		{ID: "b", Health: "Healthy"},
		{ID: "b", Health: "nonsense", Topology: on()},
	}, topology.Of(0, 1))
	want := []device.Device{{ID: "a", Nodes: topology.Of(1)}, {ID: "b"},
		{ID: "c", Healthy: true, Nodes: topology.Of(0, 1)}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestHealth(t *testing.T) {
	devices := []device.Device{{ID: "a", Healthy: true}, {ID: "b"}}
	tests := []struct {
		served bool
		id     device.ID
		want   corev1.ResourceHealthStatus
	}{
		{true, "a", corev1.ResourceHealthStatusHealthy},
		{true, "b", corev1.ResourceHealthStatusUnhealthy},
		{true, "c", corev1.ResourceHealthStatusUnknown},
		{false, "a", corev1.ResourceHealthStatusUnknown},
	}
	for _, tt := range tests {
		if got := health(devices, tt.served, tt.id); got != tt.want {
			t.Errorf("%+v: got %s", tt, got)
		}
	}
}
