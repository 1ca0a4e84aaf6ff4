package device

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/berth-run/berth/internal/resource/device"
	"github.com/berth-run/berth/internal/resource/topology"
)

// kubeletCheckpoint is the kubelet's own file beside the sockets of plugins.
const kubeletCheckpoint = "kubelet_internal_checkpoint"

// kubeletData is as much of it as is of use. Its checksum is one of Go values of
// the kubelet's and cannot be checked.
type kubeletData struct {
	Data struct {
		PodDeviceEntries []struct {
			PodUID, ContainerName, ResourceName string
			// DeviceIDs are by NUMA node, -1 for none; a plain list before 1.20.
			DeviceIDs json.RawMessage
			AllocResp []byte
		}
		RegisteredDevices map[corev1.ResourceName][]device.ID
	}
}

// readKubelet reads the kubelet's checkpoint. What cannot be read of it is named in
// the error, the rest is taken. No file is no error.
func readKubelet(path, boot string) (map[types.UID]answers, known, error) {
	k := known{Resources: map[corev1.ResourceName][]device.Device{}}
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, k, nil
	}
	if err != nil {
		return nil, k, fmt.Errorf("read the kubelet's checkpoint of devices: %w", err)
	}
	pods, err := parseKubelet(content, boot, k)
	if err != nil {
		err = fmt.Errorf("read the kubelet's checkpoint of devices %s: %w", path, err)
	}
	return pods, k, err
}

func parseKubelet(content []byte, boot string, k known) (map[types.UID]answers, error) {
	var data kubeletData
	if err := json.Unmarshal(content, &data); err != nil {
		return nil, err
	}
	for name, ids := range data.Data.RegisteredDevices {
		for _, id := range ids {
			k.Resources[name] = append(k.Resources[name], device.Device{ID: id})
		}
	}
	pods := map[types.UID]answers{}
	var errs []error
	for i, e := range data.Data.PodDeviceEntries {
		nodes, err := kubeletNodes(e.DeviceIDs)
		resp := &pluginapi.ContainerAllocateResponse{}
		if err == nil {
			err = proto.Unmarshal(e.AllocResp, resp)
		}
		if err == nil && (e.PodUID == "" || e.ContainerName == "" || e.ResourceName == "" || len(nodes) == 0) {
			err = errors.New("it names no pod, container, resource or device")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("entry %d (pod %q, container %q, %s): %w", i, e.PodUID, e.ContainerName, e.ResourceName, err))
			continue
		}
		a := answerOf(resp)
		a.Boot, a.Nodes = boot, nodes
		uid := types.UID(e.PodUID)
		if pods[uid] == nil {
			pods[uid] = answers{}
		}
		if pods[uid][e.ContainerName] == nil {
			pods[uid][e.ContainerName] = map[corev1.ResourceName]Answer{}
		}
		pods[uid][e.ContainerName][corev1.ResourceName(e.ResourceName)] = a
	}
	return pods, errors.Join(errs...)
}

func kubeletNodes(raw json.RawMessage) (map[device.ID]topology.Nodes, error) {
	byNode := map[string][]device.ID{}
	if err := json.Unmarshal(raw, &byNode); err != nil {
		var plain []device.ID
		if json.Unmarshal(raw, &plain) != nil {
			return nil, fmt.Errorf("its devices: %w", err)
		}
		byNode = map[string][]device.ID{"-1": plain}
	}
	nodes := map[device.ID]topology.Nodes{}
	for node, ids := range byNode {
		n, err := strconv.Atoi(node)
		if err != nil || n < -1 || n > 63 {
			return nil, fmt.Errorf("its devices are on NUMA node %q", node)
		}
		for _, id := range ids {
			nodes[id] |= 0
			if n >= 0 {
				nodes[id] |= topology.Of(n)
			}
		}
	}
	return nodes, nil
}
