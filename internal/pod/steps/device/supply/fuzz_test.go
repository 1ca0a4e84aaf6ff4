package supply

import (
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/berth-run/berth/internal/node/resource/device"
	"github.com/berth-run/berth/internal/node/resource/topology"
)

// FuzzPlugin reads a plugin's registration and its list of devices. An accepted endpoint stays in its directory, and
// devices are sorted, unique, and only on nodes of the machine.
func FuzzPlugin(f *testing.F) {
	bytes := func(m proto.Message) []byte {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		return b
	}
	list := bytes(&pluginapi.ListAndWatchResponse{Devices: []*pluginapi.Device{
		{ID: "b", Health: pluginapi.Healthy, Topology: &pluginapi.TopologyInfo{
			Nodes: []*pluginapi.NUMANode{{ID: 1}, {ID: -1}, {ID: 64}, {ID: 1 << 40}}}},
		{ID: "a"}, {ID: "a", Health: pluginapi.Healthy}, {}}})
	for _, endpoint := range []string{"gpu.sock", "../../run/x.sock", "/etc/x", ""} {
		f.Add(bytes(&pluginapi.RegisterRequest{Version: "v1beta1", Endpoint: endpoint,
			ResourceName: "example.com/gpu"}), list)
	}
	f.Add(bytes(&pluginapi.RegisterRequest{Version: "v1", ResourceName: "cpu"}), []byte{})
	f.Fuzz(func(t *testing.T, register, list []byte) {
		var r pluginapi.RegisterRequest
		if proto.Unmarshal(register, &r) == nil && checkRegistration(&r) == nil {
			dir := "/var/lib/kubelet/device-plugins"
			if rel, err := filepath.Rel(dir, filepath.Join(dir, r.Endpoint)); err != nil || !filepath.IsLocal(rel) {
				t.Errorf("accepted the endpoint %q", r.Endpoint)
			}
			if r.ResourceName == "cpu" || r.ResourceName == "memory" || r.ResourceName == "" {
				t.Errorf("accepted the resource %q", r.ResourceName)
			}
		}
		var l pluginapi.ListAndWatchResponse
		if proto.Unmarshal(list, &l) != nil {
			return
		}
		machine := topology.Of(0, 1)
		devices := devicesOf(l.Devices, machine)
		for i := range devices {
			if i > 0 && devices[i-1].ID >= devices[i].ID {
				t.Errorf("not sorted and unique: %v", devices)
			}
		}
		for _, d := range devices {
			if d.Nodes&^machine != 0 {
				t.Errorf("device %q is on nodes %v, which the machine does not have", d.ID, d.Nodes)
			}
			if got, ok := find(devices, d.ID); !ok || got != d || d.Healthy == slices.Contains(unhealthy(devices,
				[]device.ID{d.ID}), d.ID) {
				t.Errorf("device %+v is found as %+v", d, got)
			}
		}
	})
}
