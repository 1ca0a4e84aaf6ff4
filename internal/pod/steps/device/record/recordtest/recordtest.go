package recordtest

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Entry returns an entry of the checkpoint as the kubelet encodes it.
func Entry(t testing.TB, uid, container, name, ids string) string {
	t.Helper()
	resp, err := proto.Marshal(&pluginapi.ContainerAllocateResponse{
		Envs:    map[string]string{"GPU": "1"},
		Devices: []*pluginapi.DeviceSpec{{ContainerPath: "/dev/gpu", HostPath: "/dev/gpu1", Permissions: "rw"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`{"PodUID":%q,"ContainerName":%q,"ResourceName":%q,"DeviceIDs":%s,"AllocResp":%q}`, uid,
		container, name, ids, base64.StdEncoding.EncodeToString(resp))
}

// File returns a checkpoint with these entries. Its resources are example.com/gpu, with the devices g1 and g0, and
// example.com/nic.
func File(entries ...string) string {
	return `{"Data":{"PodDeviceEntries":[` + strings.Join(entries, ",") +
		`],"RegisteredDevices":{"example.com/gpu":["g1","g0"],"example.com/nic":null}},"Checksum":42}`
}
