package podresources

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/node/resource"
	"github.com/berth-run/berth/internal/node/resource/device"
	"github.com/berth-run/berth/internal/node/resource/memory"
	"github.com/berth-run/berth/internal/node/resource/topology"
)

// render returns the resources that a pod holds. It lists app containers and sidecars; init containers hold
// resources only for a while. nodes returns the NUMA nodes of a device.
func render(p *corev1.Pod, a resource.Allocation,
	nodes func(container string, name corev1.ResourceName, id device.ID) topology.Nodes) *api.PodResources {
	r := &api.PodResources{Name: p.Name, Namespace: p.Namespace}
	if !a.Pod.IsEmpty() {
		r.CpuIds, r.Memory = ids(a.Pod.CPUs), blocks(a.Pod.Memory)
	}
	for _, c := range pod.Containers(p) {
		if c.Kind != pod.App && c.Kind != pod.Sidecar {
			continue
		}
		given := a.Containers[c.Name]
		shown := &api.ContainerResources{Name: c.Name, CpuIds: ids(given.CPUs), Memory: blocks(given.Memory)}
		for _, name := range slices.Sorted(maps.Keys(given.Devices)) {
			for _, id := range slices.Sorted(slices.Values(given.Devices[name])) {
				shown.Devices = append(shown.Devices, devicesOn(name, id, nodes(c.Name, name, id))...)
			}
		}
		r.Containers = append(r.Containers, shown)
	}
	return r
}

// devicesOn lists a device as the kubelet does: once for each NUMA node that it is near.
func devicesOn(name corev1.ResourceName, id device.ID, nodes topology.Nodes) []*api.ContainerDevices {
	if nodes == 0 {
		return []*api.ContainerDevices{{ResourceName: string(name), DeviceIds: []string{id}}}
	}
	var all []*api.ContainerDevices
	for _, n := range nodes.IDs() {
		all = append(all,
			&api.ContainerDevices{ResourceName: string(name), DeviceIds: []string{id}, Topology: numa(topology.Of(n))})
	}
	return all
}

func numa(nodes topology.Nodes) *api.TopologyInfo {
	t := &api.TopologyInfo{}
	for _, n := range nodes.IDs() {
		t.Nodes = append(t.Nodes, &api.NUMANode{ID: int64(n)})
	}
	return t
}

// healthy returns the devices that can be allocated.
func healthy(inv device.Inventory) (all []*api.ContainerDevices) {
	for _, name := range slices.Sorted(maps.Keys(inv)) {
		for _, d := range inv[name] {
			if d.Healthy {
				all = append(all, devicesOn(name, d.ID, d.Nodes)...)
			}
		}
	}
	return all
}

func ids(set cpuset.CPUSet) (all []int64) {
	for _, id := range set.List() {
		all = append(all, int64(id))
	}
	return all
}

func blocks(list []memory.Block) (all []*api.ContainerMemory) {
	for _, b := range list {
		all = append(all,
			&api.ContainerMemory{MemoryType: string(b.Resource), Size: uint64(b.Size), Topology: numa(b.Nodes)})
	}
	return all
}
