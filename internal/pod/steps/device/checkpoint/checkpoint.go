package checkpoint

import (
	"encoding/json"
	"fmt"
	"hash/fnv"

	"k8s.io/utils/dump"
)

// Name of the file.
const Name = "kubelet_internal_checkpoint"

// Writer is in each file that this program has written. A kubelet does not look at
// it, and leaves it out when it writes the file itself.
const Writer = "berth"

// DevicesPerNUMA are ids by NUMA node, -1 for none.
type DevicesPerNUMA map[int64][]string

// PodDevicesEntry is what a container holds of a resource. AllocResp is the plugin's
// answer, a ContainerAllocateResponse in protobuf's form.
type PodDevicesEntry struct {
	PodUID        string
	ContainerName string
	ResourceName  string
	DeviceIDs     DevicesPerNUMA
	AllocResp     []byte
}

// checkpointData is what the checksum is made of: FNV-1a of a dump of the value. The
// dump has the names of the types and of this package, which are the kubelet's.
type checkpointData struct {
	PodDeviceEntries  []PodDevicesEntry
	RegisteredDevices map[string][]string
}

type file struct {
	Data     checkpointData
	Checksum uint64
	Writer   string
}

// Format is the content of the file. Of registered resources a kubelet that reads it
// takes the names only, until their plugins come.
func Format(held []PodDevicesEntry, registered map[string][]string) ([]byte, error) {
	f := file{Data: checkpointData{held, registered}, Writer: Writer}
	h := fnv.New32a()
	_, _ = h.Write([]byte(dump.ForHash(f.Data))) // a hash takes all
	f.Checksum = uint64(h.Sum32())
	text, err := json.Marshal(f)
	if err != nil {
		return nil, fmt.Errorf("encode devices for a kubelet: %w", err)
	}
	return text, nil
}
