package checkpoint

import "testing"

// TestFormat expects the texts and checksums that a kubelet (1.36) writes, except for the writer.
func TestFormat(t *testing.T) {
	tests := []struct {
		name       string
		held       []PodDevicesEntry
		registered map[string][]string
		want       string
	}{
		{
			name: "pods of two resources",
			held: []PodDevicesEntry{
				{PodUID: "pod-1", ContainerName: "app", ResourceName: "example.com/gpu",
					DeviceIDs: DevicesPerNUMA{0: {"gpu-0", "gpu-1"}, -1: {"gpu-2"}},
					AllocResp: []byte("\n\x16\n\vGPU_DEVICES\x12\akubelet")},
				{PodUID: "pod-2", ContainerName: "init", ResourceName: "example.com/nic",
					DeviceIDs: DevicesPerNUMA{1: {"eth<1>"}}, AllocResp: []byte{}},
			},
			registered: map[string][]string{"example.com/gpu": {"gpu-0", "gpu-3"}, "example.com/nic": {}},
			want: `{"Data":{"PodDeviceEntries":[{"PodUID":"pod-1","ContainerName":"app",` +
				`"ResourceName":"example.com/gpu","DeviceIDs":{"-1":["gpu-2"],"0":["gpu-0","gpu-1"]},` +
				`"AllocResp":"ChYKC0dQVV9ERVZJQ0VTEgdrdWJlbGV0"},` +
				`{"PodUID":"pod-2","ContainerName":"init","ResourceName":"example.com/nic",` +
				`"DeviceIDs":{"1":["eth\u003c1\u003e"]},"AllocResp":""}],` +
				`"RegisteredDevices":{"example.com/gpu":["gpu-0","gpu-3"],"example.com/nic":[]}},` +
				`"Checksum":1777640562,"Writer":"berth"}`,
		},
		{
			name: "none", registered: map[string][]string{},
			want: `{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":3467439661,"Writer":"berth"}`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Format(tt.held, tt.registered)
			if err != nil || string(got) != tt.want {
				t.Errorf("%s (error %v)\nwant %s", got, err, tt.want)
			}
		})
	}
}
