package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/berth-run/berth/internal/base/checkpoint"
	"github.com/berth-run/berth/internal/base/safepath"
	"github.com/berth-run/berth/internal/node/resource/device"
	"github.com/berth-run/berth/internal/node/resource/topology"
	kubelet "github.com/berth-run/berth/internal/pod/steps/device/checkpoint"
)

// kubeletData holds the used part of the kubelet's checkpoint. The checksum is not verified, because running containers
// hold whatever can still be read of a damaged file.
type kubeletData struct {
	Data struct {
		PodDeviceEntries []struct {
			PodUID, ContainerName, ResourceName string
			// DeviceIDs lists ids by NUMA node, with -1 for none. Before 1.20 it was a plain list.
			DeviceIDs json.RawMessage
			AllocResp []byte
		}
		RegisteredDevices map[corev1.ResourceName][]device.ID
	}
	Writer string
}

// kubeletState is the content of a kubelet's checkpoint.
type kubeletState struct {
	pods  map[types.UID]Answers
	known Resources
	// none is set if there is no file. ours is set if an agent wrote the file last.
	none, ours bool
}

// maxCheckpoint bounds the kubelet's checkpoint. Pods with device plugins write to its directory.
const maxCheckpoint = 64 << 20

// readKubelet reads the kubelet's checkpoint. It skips the entries that it cannot read and names them in the error. A
// missing file is no error.
func readKubelet(path, boot string) (kubeletState, error) {
	s := kubeletState{known: Resources{}}
	content, err := safepath.ReadFile(path, 1, maxCheckpoint)
	if errors.Is(err, fs.ErrNotExist) {
		s.none = true
		return s, nil
	}
	if err != nil {
		return s, fmt.Errorf("read the kubelet's checkpoint of devices: %w", err)
	}
	if err = s.parse(content, boot); err != nil {
		err = fmt.Errorf("read the kubelet's checkpoint of devices %s: %w", path, err)
	}
	return s, err
}

func (s *kubeletState) parse(content []byte, boot string) error {
	var data kubeletData
	if err := json.Unmarshal(content, &data); err != nil {
		return err
	}
	s.ours = data.Writer == kubelet.Writer
	for name, ids := range data.Data.RegisteredDevices {
		for _, id := range ids {
			s.known[name] = append(s.known[name], device.Device{ID: id})
		}
	}
	s.pods = map[types.UID]Answers{}
	var errs []error
	for i, e := range data.Data.PodDeviceEntries {
		nodes, err := kubeletNodes(e.DeviceIDs)
		resp := &pluginapi.ContainerAllocateResponse{}
		if err == nil {
			err = proto.Unmarshal(e.AllocResp, resp)
		}
		if err == nil && (e.PodUID == "" || e.ContainerName == "" || e.ResourceName == "" || len(nodes) == 0) {
			err = errors.New("the pod, container, resource or device is missing")
		}
		if err != nil {
			errs = append(errs,
				fmt.Errorf("entry %d (pod %q, container %q, %s): %w", i, e.PodUID, e.ContainerName, e.ResourceName,
					err))
			continue
		}
		a := AnswerOf(resp)
		a.Boot, a.Nodes = boot, nodes
		uid := types.UID(e.PodUID)
		s.pods[uid] = s.pods[uid].with(e.ContainerName, corev1.ResourceName(e.ResourceName), a)
	}
	return errors.Join(errs...)
}

func kubeletNodes(raw json.RawMessage) (map[device.ID]topology.Nodes, error) {
	byNode := map[string][]device.ID{}
	if err := json.Unmarshal(raw, &byNode); err != nil {
		var plain []device.ID
		if json.Unmarshal(raw, &plain) != nil {
			return nil, fmt.Errorf("decode devices: %w", err)
		}
		byNode = map[string][]device.ID{"-1": plain}
	}
	nodes := map[device.ID]topology.Nodes{}
	for node, ids := range byNode {
		n, err := strconv.Atoi(node)
		if err != nil || n < -1 || n > 63 {
			return nil, fmt.Errorf("invalid NUMA node %q of its devices", node)
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

// mirror writes the kubelet's checkpoint, for a kubelet that takes over the node. It runs after the agent's own files
// were written, because those count for the next agent.
func (r *Records) mirror() {
	r.mirroring.Lock()
	defer r.mirroring.Unlock()
	r.mu.Lock()
	all, registered := maps.Clone(r.answers), r.healthy
	r.mu.Unlock()
	path := filepath.Join(r.o.Plugins, kubelet.Name)
	if _, err := os.Lstat(path); err != nil && len(all)+len(registered) == 0 {
		return // a kubelet creates no file either
	}
	entries, err := kubeletEntries(all)
	if err == nil {
		var text []byte
		if text, err = kubelet.Format(entries, registered); err == nil {
			err = errors.Join(os.MkdirAll(r.o.Plugins, 0o750), checkpoint.ReplaceUnsynced(path, text))
		}
	}
	if err != nil {
		r.o.Log.Error(
			"write the kubelet's checkpoint of devices failed; a kubelet that takes over may allocate them twice",
			"err", err)
	}
}

// kubeletEntries converts answers to the kubelet's entries, sorted.
func kubeletEntries(all map[types.UID]Answers) ([]kubelet.PodDevicesEntry, error) {
	var entries []kubelet.PodDevicesEntry
	for _, uid := range slices.Sorted(maps.Keys(all)) {
		for _, container := range slices.Sorted(maps.Keys(all[uid])) {
			for _, name := range slices.Sorted(maps.Keys(all[uid][container])) {
				a := all[uid][container][name]
				resp, err := proto.MarshalOptions{Deterministic: true}.Marshal(a.response())
				if err != nil {
					return nil,
						fmt.Errorf("encode the device plugin's answer for %s for container %q of pod %s: %w", name,
							container, uid,
							err)
				}
				entries = append(entries,
					kubelet.PodDevicesEntry{PodUID: string(uid), ContainerName: container, ResourceName: string(name),
						DeviceIDs: a.byNode(), AllocResp: resp})
			}
		}
	}
	return entries, nil
}

// byNode lists a device under each of its NUMA nodes, as a kubelet does.
func (a Answer) byNode() kubelet.DevicesPerNUMA {
	all := kubelet.DevicesPerNUMA{}
	for _, id := range a.IDs() {
		nodes := a.Nodes[id].IDs()
		if len(nodes) == 0 {
			nodes = []int{-1}
		}
		for _, n := range nodes {
			all[int64(n)] = append(all[int64(n)], id)
		}
	}
	return all
}

// response converts an answer back into the plugin's response. It is the inverse of AnswerOf.
func (a Answer) response() *pluginapi.ContainerAllocateResponse {
	r := &pluginapi.ContainerAllocateResponse{Envs: a.Envs, Annotations: a.Annotations}
	for _, m := range a.Mounts {
		r.Mounts = append(r.Mounts,
			&pluginapi.Mount{ContainerPath: m.Container, HostPath: m.Host, ReadOnly: m.ReadOnly})
	}
	for _, n := range a.Devices {
		r.Devices = append(r.Devices,
			&pluginapi.DeviceSpec{ContainerPath: n.Container, HostPath: n.Host, Permissions: n.Permissions})
	}
	for _, name := range a.CDI {
		r.CdiDevices = append(r.CdiDevices, &pluginapi.CDIDevice{Name: name})
	}
	return r
}
