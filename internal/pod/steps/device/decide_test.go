package device

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/berth-run/berth/internal/node/resource"
	"github.com/berth-run/berth/internal/node/resource/device"
	"github.com/berth-run/berth/internal/node/resource/topology"
)

const gpu corev1.ResourceName = "example.com/gpu"

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

func holding(ids map[string][]device.ID) resource.Allocation {
	a := resource.Allocation{Containers: map[string]resource.Holding{}}
	for container, ids := range ids {
		a.Containers[container] = resource.Holding{Devices: map[corev1.ResourceName][]device.ID{gpu: ids}}
	}
	return a
}

// TestWants expects the devices of an init container to be fixed for the containers that start after it.
func TestWants(t *testing.T) {
	p := &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "init"}, {Name: "none"}},
		Containers:     []corev1.Container{{Name: "app"}, {Name: "other"}},
	}}
	got := wants(p, holding(map[string][]device.ID{"other": {"d"}, "app": {"c", "a"}, "init": {"b", "a"}, "none": {}}))
	want := []want{
		{"init", gpu, []device.ID{"a", "b"}, sets.New[device.ID]()},
		{"app", gpu, []device.ID{"a", "c"}, sets.New("a")},
		{"other", gpu, []device.ID{"d"}, sets.New[device.ID]()},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(want[0])); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestExchanged(t *testing.T) {
	a := holding(map[string][]device.ID{"init": {"a", "b"}, "app": {"a", "c"}, "other": {"d"}})
	got := exchanged(a, gpu, []device.ID{"a", "b"}, []device.ID{"b", "x"})
	if diff := cmp.Diff(map[string][]device.ID{"init": {"b", "x"}, "app": {"c", "x"}}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(
		holding(map[string][]device.ID{"init": {"a", "b"}, "app": {"a", "c"},
			"other": {"d"}}).Containers["app"].Devices, a.Containers["app"].Devices); diff != "" {
		t.Errorf("exchanged changed its argument:\n%s", diff)
	}
}

func TestPut(t *testing.T) {
	config := &runtimeapi.ContainerConfig{
		Envs:        []*runtimeapi.KeyValue{{Key: "OWN", Value: []byte("pod")}},
		Mounts:      []*runtimeapi.Mount{{ContainerPath: "/data", HostPath: "/volumes/data"}},
		Annotations: map[string]string{"own": "pod"},
	}
	conflicts := apply(config, map[corev1.ResourceName]Answer{
		"example.com/b": {
			Envs: map[string]string{"SAME": "1", "OTHER": "b"}, Mounts: []Mount{{"/lib", "/b", true}},
			Devices:     []Node{{"/dev/b", "/dev/zero", "rw"}, {"/dev/x", "/dev/full", "r"}},
			CDI:         []string{"example.com/b=0", "example.com/x=1"},
			Annotations: map[string]string{"note": "b"},
		},
		"example.com/a": {
			Envs: map[string]string{"OWN": "plugin", "SAME": "1", "OTHER": "a"}, Mounts: []Mount{{"/lib", "/a", true}},
			Devices: []Node{{"/dev/x", "/dev/null", "rwm"}}, CDI: []string{"example.com/x=1"},
			Annotations: map[string]string{"own": "plugin", "note": "a"},
		},
	})
	want := &runtimeapi.ContainerConfig{
		Envs: []*runtimeapi.KeyValue{
			{Key: "OTHER", Value: []byte("a")}, {Key: "OWN", Value: []byte("plugin")},
			{Key: "SAME", Value: []byte("1")}, {Key: "OWN", Value: []byte("pod")},
		},
		Mounts: []*runtimeapi.Mount{{ContainerPath: "/lib", HostPath: "/a", Readonly: true},
			{ContainerPath: "/data", HostPath: "/volumes/data"}},
		Devices: []*runtimeapi.Device{{ContainerPath: "/dev/x", HostPath: "/dev/null", Permissions: "rwm"},
			{ContainerPath: "/dev/b", HostPath: "/dev/zero", Permissions: "rw"}},
		CDIDevices:  []*runtimeapi.CDIDevice{{Name: "example.com/x=1"}, {Name: "example.com/b=0"}},
		Annotations: map[string]string{"own": "pod", "note": "a"},
	}
	if diff := cmp.Diff(want, config, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	wantConflicts := []string{"environment variable OTHER of example.com/b", "mount /lib of example.com/b",
		"device /dev/x of example.com/b", "annotation note of example.com/b"}
	if diff := cmp.Diff(wantConflicts, conflicts); diff != "" {
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
