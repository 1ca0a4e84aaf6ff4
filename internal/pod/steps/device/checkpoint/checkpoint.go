package checkpoint

import (
	"encoding/json"
	"fmt"
	"hash/fnv"

	"k8s.io/utils/dump"
)

// Name is the name of the checkpoint file.
const Name = "kubelet_internal_checkpoint"

// Writer is the value of the field Writer in each file that this program writes. A kubelet ignores the field and omits
// it when it writes the file.
const Writer = "berth"

// DevicesPerNUMA lists device ids by NUMA node. The key -1 holds devices without a known node.
type DevicesPerNUMA map[int64][]string

// PodDevicesEntry lists the devices that a container holds of one resource. AllocResp is the plugin's answer to
// Allocate: an encoded ContainerAllocateResponse.
type PodDevicesEntry struct {
	PodUID        string
	ContainerName string
	ResourceName  string
	DeviceIDs     DevicesPerNUMA
	AllocResp     []byte
}

// checkpointData is the part that the checksum covers. The checksum is the FNV-1a hash of a dump of the value. The dump
// contains the names of the types and of this package, so they must stay the same as the kubelet's.
type checkpointData struct {
	PodDeviceEntries  []PodDevicesEntry
	RegisteredDevices map[string][]string
}

type file struct {
	Data     checkpointData
	Checksum uint64
	Writer   string
}

// Format encodes the content of the file. A kubelet that reads it uses only the names of the registered resources and
// waits for their plugins to list the devices.
func Format(held []PodDevicesEntry, registered map[string][]string) ([]byte, error) {
	f := file{Data: checkpointData{held, registered}, Writer: Writer}
	h := fnv.New32a()
	_, _ = h.Write([]byte(dump.ForHash(f.Data))) // a hash never fails
	f.Checksum = uint64(h.Sum32())
	text, err := json.Marshal(f)
	if err != nil {
		return nil, fmt.Errorf("encode devices for a kubelet: %w", err)
	}
	return text, nil
}
