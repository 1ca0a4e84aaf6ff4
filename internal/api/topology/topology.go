package topology

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/node/machine"
	"github.com/berth-run/berth/internal/node/resource"
	numa "github.com/berth-run/berth/internal/node/resource/topology"
)

// Of returns the topology of a node and its holders. names maps the UIDs of pods to their names. A
// pod that is not in names is shown by its UID.
func Of(n resource.Node, held resource.Held, names map[types.UID]types.NamespacedName) api.Topology {
	m := n.Machine
	t := api.Topology{
		CPUs: m.Online().String(), OfflineCPUs: m.Offline.String(), ReservedCPUs: n.Policy.ReservedCPUs.String(),
		SharedCPUs: m.Online().String(),
		CPUPolicy:  "none", MemoryPolicy: "None",
		TopologyPolicy: string(cmp.Or(n.Policy.Topology.Policy, numa.None)),
		TopologyScope:  cmp.Or(n.Policy.Topology.Scope, numa.ScopeContainer),
		Sockets:        []api.CPUSocket{}, Nodes: []api.NUMANode{}, Caches: []api.Cache{}, LowerCaches: []api.Cache{},
		Cores: []api.Core{}, Devices: []api.DeviceHolder{}, Holders: []api.Holder{},
	}
	if n.Policy.CPUs {
		t.CPUPolicy, t.SharedCPUs = "static", n.Shared(held).String()
	}
	if n.Policy.Memory {
		t.MemoryPolicy = "Static"
	}
	addMachine(&t, n)
	for uid, a := range held {
		who := api.Holder{Namespace: names[uid].Namespace, Pod: names[uid].Name, UID: uid}
		if !a.Pod.IsEmpty() {
			t.Holders = append(t.Holders, holder(who, a.Pod))
		}
		for name, g := range a.Containers {
			who.Container = name
			t.Holders = append(t.Holders, holder(who, g))
		}
	}
	slices.SortFunc(t.Holders, func(a, b api.Holder) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Pod, b.Pod),
			strings.Compare(string(a.UID), string(b.UID)), strings.Compare(a.Container, b.Container))
	})
	addDevices(&t, n)
	return t
}

// addMachine adds the CPUs, NUMA nodes and caches of the machine.
func addMachine(t *api.Topology, resources resource.Node) {
	m := resources.Machine
	for id, cpus := range sorted(m.BySocket()) {
		t.Sockets = append(t.Sockets, api.CPUSocket{ID: id, CPUs: cpus.String()})
	}
	for _, n := range m.Nodes {
		node := api.NUMANode{ID: n.ID, CPUs: n.CPUs.String(), Memory: n.Memory}
		for size, count := range sorted(n.HugePages) {
			node.HugePages = append(node.HugePages, api.HugePages{Size: size, Count: count})
		}
		for name, size := range sorted(resources.Policy.ReservedMemory[n.ID]) {
			node.Reserved = append(node.Reserved, api.ReservedMemory{Resource: name, Size: size})
		}
		for id, d := range sorted(n.Distances) {
			node.Distances = append(node.Distances, api.Distance{Node: id, Distance: d})
		}
		t.Nodes = append(t.Nodes, node)
	}
	for _, c := range m.Caches {
		t.Caches = append(t.Caches, cacheOf(c))
	}
	for _, c := range m.Lower {
		t.LowerCaches = append(t.LowerCaches, cacheOf(c))
	}
	for id, cpus := range sorted(m.ByCore()) {
		c, _ := m.CPU(id)
		t.Cores = append(t.Cores, api.Core{ID: id, Socket: c.Socket, Node: c.Node, CPUs: cpus.String()})
	}
}

func cacheOf(c machine.Cache) api.Cache {
	return api.Cache{ID: c.ID, Level: c.Level, Size: c.Size, CPUs: c.CPUs.String()}
}

func holder(who api.Holder, g resource.Holding) api.Holder {
	who.CPUs = g.CPUs.String()
	for _, b := range g.Memory {
		who.Memory = append(who.Memory, api.MemoryBlock{Nodes: b.Nodes.IDs(), Resource: b.Resource, Size: b.Size})
	}
	for name, ids := range sorted(g.Devices) {
		who.Devices = append(who.Devices, api.HeldDevices{Resource: name, IDs: slices.Sorted(slices.Values(ids))})
	}
	return who
}

// addDevices lists the devices that plugins offer. It also lists devices that pods hold and no plugin
// offers any more, as unhealthy.
func addDevices(t *api.Topology, n resource.Node) {
	type key struct {
		resource corev1.ResourceName
		id       string
	}
	holders := map[key]*api.Holder{}
	for _, h := range t.Holders {
		who := api.Holder{Namespace: h.Namespace, Pod: h.Pod, UID: h.UID, Container: h.Container}
		for _, d := range h.Devices {
			for _, id := range d.IDs {
				holders[key{d.Resource, id}] = &who
			}
		}
	}
	for name, offered := range n.Devices {
		for _, d := range offered {
			at := key{name, d.ID}
			t.Devices = append(t.Devices,
				api.DeviceHolder{Resource: name, ID: d.ID, Healthy: d.Healthy, Nodes: nodeIDs(d.Nodes),
					Holder: holders[at]})
			delete(holders, at)
		}
	}
	for at, who := range holders {
		t.Devices = append(t.Devices, api.DeviceHolder{Resource: at.resource, ID: at.id, Holder: who})
	}
	slices.SortFunc(t.Devices, func(a, b api.DeviceHolder) int {
		return cmp.Or(strings.Compare(string(a.Resource), string(b.Resource)), strings.Compare(a.ID, b.ID))
	})
}

func nodeIDs(n numa.Nodes) []int {
	if n == 0 {
		return nil
	}
	return n.IDs()
}

// sorted iterates over a map in the order of its keys.
func sorted[K cmp.Ordered, V any](m map[K]V) func(yield func(K, V) bool) {
	return func(yield func(K, V) bool) {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if !yield(k, m[k]) {
				return
			}
		}
	}
}
