package state

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/node/machine"
	"github.com/berth-run/berth/internal/node/resource"
	"github.com/berth-run/berth/internal/node/resource/memory"
)

// writer marks the files that Berth wrote. A kubelet ignores the mark and drops it when it rewrites the file.
const writer = "berth"

// Ours reports whether Berth, and not a kubelet, wrote the file last.
func Ours(text []byte) bool {
	var f struct{ Writer string }
	return json.Unmarshal(text, &f) == nil && f.Writer == writer
}

// FormatCPUs encodes a cpu_manager_state of version 2. Every kubelet since 1.18 reads it, unless it manages pod-level
// resources and a pod holds some. It omits CPUs of a pod as a whole and those that its containers share. shared are the
// CPUs that no container holds.
func FormatCPUs(shared cpuset.CPUSet, held resource.Held) ([]byte, error) {
	c := &CPUManagerCheckpointV2{PolicyName: "static", DefaultCPUSet: shared.String(),
		Entries: map[string]map[string]string{}}
	each(held, func(uid types.UID, container string, g resource.Holding) {
		if g.CPUs.IsEmpty() {
			return
		}
		if c.Entries[string(uid)] == nil {
			c.Entries[string(uid)] = map[string]string{}
		}
		c.Entries[string(uid)][container] = g.CPUs.String()
	})
	c.Checksum = checksum(originalName(hashInput(c)))
	return encode(CPUFile, struct {
		*CPUManagerCheckpointV2
		Writer string `json:"writer"`
	}{c, writer})
}

// FormatMemory encodes a memory_manager_state of version 1, which every kubelet reads. It holds the containers' memory
// and the machine state as a kubelet will compute it.
func FormatMemory(m machine.Machine, reserved memory.Reserved, held resource.Held) ([]byte, error) {
	c := &MemoryManagerCheckpointV1{PolicyName: "Static", MachineState: nodesOf(m, reserved),
		Entries: ContainerMemoryAssignments{}}
	each(held, func(uid types.UID, container string, g resource.Holding) {
		for _, b := range g.Memory {
			block := Block{NUMAAffinity: b.Nodes.IDs(), Type: b.Resource, Size: uint64(b.Size)}
			if c.Entries[string(uid)] == nil {
				c.Entries[string(uid)] = map[string][]Block{}
			}
			c.Entries[string(uid)][container] = append(c.Entries[string(uid)][container], block)
			c.MachineState.take(block)
		}
	})
	c.Checksum = checksum(originalName(hashInput(c)))
	return encode(MemoryFile, struct {
		*MemoryManagerCheckpointV1
		Writer string `json:"writer"`
	}{c, writer})
}

func each(held resource.Held, f func(types.UID, string, resource.Holding)) {
	for uid, a := range held {
		for container, g := range a.Containers {
			f(uid, container, g)
		}
	}
}

func encode(name string, v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode %s for a kubelet: %w", name, err)
	}
	return text, nil
}

// nodesOf returns the state of a machine before the first allocation.
func nodesOf(m machine.Machine, reserved memory.Reserved) NUMANodeMap {
	all := NUMANodeMap{}
	for _, n := range m.Nodes {
		state := &NUMANodeState{MemoryMap: map[corev1.ResourceName]*MemoryTable{}, Cells: []int{n.ID}}
		add := func(name corev1.ResourceName, total, give int64) {
			kept := reserved[n.ID][name]
			state.MemoryMap[name] = &MemoryTable{TotalMemSize: uint64(total), SystemReserved: uint64(kept),
				Allocatable: uint64(give - kept), Free: uint64(give - kept)}
		}
		give := n.Memory
		for size, count := range n.HugePages {
			name := corev1.ResourceName(corev1.ResourceHugePagesPrefix +
				resourceapi.NewQuantity(size, resourceapi.BinarySI).String())
			add(name, size*count, size*count)
			give -= size * count
		}
		add(corev1.ResourceMemory, n.Memory, give)
		all[n.ID] = state
	}
	return all
}

// take subtracts a block from its nodes, lowest ID first, and ignores nodes that the machine does not have.
func (all NUMANodeMap) take(b Block) {
	left := b.Size
	for _, id := range b.NUMAAffinity {
		n, ok := all[id]
		if !ok {
			continue
		}
		n.NumberOfAssignments++
		n.Cells = b.NUMAAffinity
		if t := n.MemoryMap[b.Type]; t != nil {
			part := min(left, t.Free)
			t.Reserved, t.Free, left = t.Reserved+part, t.Free-part, left-part
		}
	}
}
