package device

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
	"sync"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/berth-run/berth/internal/base/checkpoint"
	"github.com/berth-run/berth/internal/node/resource/device"
	"github.com/berth-run/berth/internal/node/resource/topology"
	kubelet "github.com/berth-run/berth/internal/pod/steps/device/checkpoint"
)

// kubeletData is as much of its checkpoint as is of use. The checksum is not looked
// at: what can be read of a damaged file is held by containers that run.
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
	Writer string
}

// kubeletState is what is found of a kubelet.
type kubeletState struct {
	pods  map[types.UID]answers
	known known
	// none: there is no file. ours: an agent has written it after a kubelet.
	none, ours bool
}

// readKubelet reads the kubelet's checkpoint. What cannot be read of it is named in
// the error, the rest is taken. No file is no error.
func readKubelet(path, boot string) (kubeletState, error) {
	s := kubeletState{known: known{Resources: map[corev1.ResourceName][]device.Device{}}}
	content, err := os.ReadFile(path)
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
			s.known.Resources[name] = append(s.known.Resources[name], device.Device{ID: id})
		}
	}
	s.pods = map[types.UID]answers{}
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
			errs = append(errs,
				fmt.Errorf("entry %d (pod %q, container %q, %s): %w", i, e.PodUID, e.ContainerName, e.ResourceName,
					err))
			continue
		}
		a := answerOf(resp)
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

// mirror writes the kubelet's file.
type mirror struct {
	d  *Devices
	mu sync.Mutex
}

// write has all that is held in it for a kubelet that takes the node over, after the
// files of this agent, which count for the next one.
func (m *mirror) write() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.d.mu.Lock()
	all := maps.Clone(m.d.answers)
	m.d.mu.Unlock()
	registered := m.d.healthy()
	path := filepath.Join(m.d.opts.Dir, kubelet.Name)
	if _, err := os.Lstat(path); err != nil && len(all)+len(registered) == 0 {
		return // a kubelet makes none either
	}
	entries, err := kubeletEntries(all)
	if err == nil {
		var text []byte
		if text, err = kubelet.Format(entries, registered); err == nil {
			err = errors.Join(os.MkdirAll(m.d.opts.Dir, 0o750), checkpoint.ReplaceUnsynced(path, text))
		}
	}
	if err != nil {
		m.d.opts.Log.Error("keep the devices of pods as a kubelet does; one that takes over may give them away again",
			"err", err)
	}
}

// kubeletEntries are answers as a kubelet keeps them, ordered.
func kubeletEntries(all map[types.UID]answers) ([]kubelet.PodDevicesEntry, error) {
	var entries []kubelet.PodDevicesEntry
	for _, uid := range slices.Sorted(maps.Keys(all)) {
		for _, container := range slices.Sorted(maps.Keys(all[uid])) {
			for _, name := range slices.Sorted(maps.Keys(all[uid][container])) {
				a := all[uid][container][name]
				resp, err := proto.MarshalOptions{Deterministic: true}.Marshal(a.response())
				if err != nil {
					return nil,
						fmt.Errorf("encode the answer about %s for container %q of pod %s: %w", name, container, uid,
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

// byNode has a device under each of its NUMA nodes, as a kubelet does.
func (a Answer) byNode() kubelet.DevicesPerNUMA {
	all := kubelet.DevicesPerNUMA{}
	for _, id := range a.ids() {
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

// response is the plugin's answer again: what answerOf has read.
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
