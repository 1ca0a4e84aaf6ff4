package device

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/node/resource"
	"github.com/berth-run/berth/internal/node/resource/device"
	"github.com/berth-run/berth/internal/pod/steps/device/record"
)

const gpu corev1.ResourceName = "example.com/gpu"

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
	conflicts := apply(config, map[corev1.ResourceName]record.Answer{
		"example.com/b": {
			Envs:   map[string]string{"SAME": "1", "OTHER": "b"},
			Mounts: []record.Mount{{Container: "/lib", Host: "/b", ReadOnly: true}},
			Devices: []record.Node{{Container: "/dev/b", Host: "/dev/zero", Permissions: "rw"},
				{Container: "/dev/x", Host: "/dev/full", Permissions: "r"}},
			CDI:         []string{"example.com/b=0", "example.com/x=1"},
			Annotations: map[string]string{"note": "b"},
		},
		"example.com/a": {
			Envs:        map[string]string{"OWN": "plugin", "SAME": "1", "OTHER": "a"},
			Mounts:      []record.Mount{{Container: "/lib", Host: "/a", ReadOnly: true}},
			Devices:     []record.Node{{Container: "/dev/x", Host: "/dev/null", Permissions: "rwm"}},
			CDI:         []string{"example.com/x=1"},
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
