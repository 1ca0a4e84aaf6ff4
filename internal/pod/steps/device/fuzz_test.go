package device

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/berth-run/berth/internal/pod/steps/device/record"
)

// FuzzAllocate adds the answers of two plugins to a container. They survive a restart of the agent, no path is mounted
// twice, and what the pod's spec sets counts.
func FuzzAllocate(f *testing.F) {
	answer, err := proto.Marshal(&pluginapi.ContainerAllocateResponse{
		Envs:        map[string]string{"A": "plugin", "B": "b"},
		Annotations: map[string]string{"own": "plugin", "more": "x"},
		Mounts: []*pluginapi.Mount{{ContainerPath: "/a", HostPath: "/b"},
			{ContainerPath: "/a", HostPath: "/c"}, nil},
		Devices:    []*pluginapi.DeviceSpec{{ContainerPath: "/dev/a", HostPath: "/dev/b", Permissions: "rw"}, {}},
		CdiDevices: []*pluginapi.CDIDevice{{Name: "a/b=c"}, {Name: "a/b=c"}},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(answer, answer)
	f.Add(answer, []byte{})
	f.Fuzz(func(t *testing.T, first, second []byte) {
		all := map[corev1.ResourceName]record.Answer{}
		for name, raw := range map[corev1.ResourceName][]byte{"example.com/a": first, "example.com/b": second} {
			var r pluginapi.ContainerAllocateResponse
			if proto.Unmarshal(raw, &r) != nil {
				return
			}
			a := record.AnswerOf(&r)
			text, err := json.Marshal(a)
			if err != nil {
				t.Fatal(err)
			}
			var again record.Answer
			if err := json.Unmarshal(text, &again); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(a, again, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("stored and read again (-want +got):\n%s", diff)
			}
			all[name] = a
		}
		own := &runtimeapi.KeyValue{Key: "A", Value: []byte("own")}
		config := &runtimeapi.ContainerConfig{Envs: []*runtimeapi.KeyValue{own},
			Annotations: map[string]string{"own": "own"}}
		apply(config, all)
		if config.Envs[len(config.Envs)-1] != own || config.Annotations["own"] != "own" {
			t.Errorf("a plugin overrides the spec: %v, %v", config.Envs, config.Annotations)
		}
		paths := map[string]bool{}
		for _, m := range config.Mounts {
			if paths[m.ContainerPath] {
				t.Errorf("%q is mounted twice", m.ContainerPath)
			}
			paths[m.ContainerPath] = true
		}
		cdi := map[string]bool{}
		for _, d := range config.CDIDevices {
			if cdi[d.Name] {
				t.Errorf("the CDI device %q is added twice", d.Name)
			}
			cdi[d.Name] = true
		}
	})
}
