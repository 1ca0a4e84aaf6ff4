package state

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"
	"k8s.io/utils/dump"

	"github.com/berth-run/berth/internal/base/cpulist"
	"github.com/berth-run/berth/internal/node/resource"
	"github.com/berth-run/berth/internal/node/resource/memory"
	"github.com/berth-run/berth/internal/node/resource/topology"
)

// The names of the kubelet's state files in its root directory.
const (
	CPUFile    = "cpu_manager_state"
	MemoryFile = "memory_manager_state"
)

// The kubelet's checksum is an FNV-1a hash of a dump of the value, including its type names. The types below therefore
// have the kubelet's names and fields.

// Checksum of a file. 0 means that the file has none.
type Checksum uint64

// PodCPUAssignments are pod-level CPUs by pod UID.
type PodCPUAssignments map[string]PodEntry

// PodEntry holds the CPUs of a pod as a whole.
type PodEntry struct{ CPUSet cpuset.CPUSet }

// UnmarshalJSON reads a list of CPUs.
func (e *PodEntry) UnmarshalJSON(text []byte) error {
	var raw struct {
		CPUSet string `json:"cpuSet"`
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return err
	}
	var err error
	e.CPUSet, err = cpulist.Set(raw.CPUSet)
	return err
}

// CPUManagerCheckpoint is version 3. Version 2 is the same without PodEntries.
type CPUManagerCheckpoint struct {
	PolicyName    string
	DefaultCPUSet string                       `json:"defaultCpuSet"`
	Entries       map[string]map[string]string `json:"entries"`
	PodEntries    PodCPUAssignments            `json:"podEntries"`
	Checksum      Checksum
}

// CPUManagerCheckpointV2 has the type name that kubelets use since version 3 exists.
type CPUManagerCheckpointV2 struct {
	PolicyName    string                       `json:"policyName"`
	DefaultCPUSet string                       `json:"defaultCpuSet"`
	Entries       map[string]map[string]string `json:"entries"`
	Checksum      Checksum                     `json:"checksum"`
}

// CPUManagerCheckpointV1 has entries by container ID.
type CPUManagerCheckpointV1 struct {
	PolicyName    string
	DefaultCPUSet string `json:"defaultCpuSet"`
	Entries       map[string]string
	Checksum      Checksum
}

// ParseCPUs reads a cpu_manager_state of any version and returns the CPUs that pods hold. Version 1 has container IDs
// but no pods, so it returns nothing for it.
func ParseCPUs(text []byte) (map[types.UID]resource.Allocation, error) {
	var old CPUManagerCheckpointV1
	if err := json.Unmarshal(text, &old); err == nil && len(old.Entries) > 0 {
		return nil,
			check(old.Checksum,
				&CPUManagerCheckpointV1{PolicyName: old.PolicyName, DefaultCPUSet: old.DefaultCPUSet,
					Entries: old.Entries})
	}
	c := CPUManagerCheckpoint{Entries: map[string]map[string]string{}, PodEntries: PodCPUAssignments{}}
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, fmt.Errorf("is not a CPU manager state: %w", err)
	}
	sum := c.Checksum
	c.Checksum = 0
	older := &CPUManagerCheckpointV2{PolicyName: c.PolicyName, DefaultCPUSet: c.DefaultCPUSet, Entries: c.Entries}
	oldest := &CPUManagerCheckpointV1{PolicyName: c.PolicyName, DefaultCPUSet: c.DefaultCPUSet,
		Entries: map[string]string{}}
	values := []any{&c, older}
	if len(c.Entries) == 0 {
		values = append(values, oldest)
	}
	if err := check(sum, values...); err != nil {
		return nil, err
	}
	found := map[types.UID]resource.Allocation{}
	for uid, containers := range c.Entries {
		a := resource.Allocation{Containers: map[string]resource.Holding{},
			Pod: resource.Holding{CPUs: c.PodEntries[uid].CPUSet}}
		times := map[string]int{}
		for _, list := range containers {
			times[list]++
		}
		for name, list := range containers {
			set, err := cpulist.Set(list)
			if err != nil {
				return nil, fmt.Errorf("container %q of pod %s: %w", name, uid, err)
			}
			// otherwise the containers share the pod's CPUs
			if !set.IsEmpty() && (times[list] == 1 || a.Pod.CPUs.IsEmpty()) {
				a.Containers[name] = resource.Holding{CPUs: set}
			}
		}
		if !a.IsEmpty() {
			found[types.UID(uid)] = a
		}
	}
	return found, nil
}

// MemoryTable counts one resource of a NUMA node, in bytes.
type MemoryTable struct {
	TotalMemSize   uint64 `json:"total"`
	SystemReserved uint64 `json:"systemReserved"`
	Allocatable    uint64 `json:"allocatable"`
	Reserved       uint64 `json:"reserved"`
	Free           uint64 `json:"free"`
}

// NUMANodeState is the state of one NUMA node.
type NUMANodeState struct {
	NumberOfAssignments int                                  `json:"numberOfAssignments"`
	MemoryMap           map[corev1.ResourceName]*MemoryTable `json:"memoryMap"`
	Cells               []int                                `json:"cells"`
}

// NUMANodeMap is keyed by NUMA node ID.
type NUMANodeMap map[int]*NUMANodeState

// Block is an amount of memory on a set of NUMA nodes.
type Block struct {
	NUMAAffinity []int               `json:"numaAffinity"`
	Type         corev1.ResourceName `json:"type"`
	Size         uint64              `json:"size"`
}

// ContainerMemoryAssignments are memory blocks by pod UID and container name.
type ContainerMemoryAssignments map[string]map[string][]Block

// PodMemoryAssignments are memory blocks by pod UID.
type PodMemoryAssignments map[string]MemoryPodEntry

// MemoryPodEntry holds the memory of a pod as a whole.
type MemoryPodEntry struct{ MemoryBlocks []Block }

// MemoryManagerCheckpoint is version 2. Version 1 is the same without PodEntries.
type MemoryManagerCheckpoint struct {
	PolicyName   string
	MachineState NUMANodeMap
	Entries      ContainerMemoryAssignments
	PodEntries   PodMemoryAssignments
	Checksum     Checksum
}

// MemoryManagerCheckpointV1 has the type name that kubelets use since version 2 exists.
type MemoryManagerCheckpointV1 struct {
	PolicyName   string                     `json:"policyName"`
	MachineState NUMANodeMap                `json:"machineState"`
	Entries      ContainerMemoryAssignments `json:"entries"`
	Checksum     Checksum                   `json:"checksum"`
}

// ParseMemory reads a memory_manager_state of any version and returns the memory that pods hold.
func ParseMemory(text []byte) (map[types.UID]resource.Allocation, error) {
	c := MemoryManagerCheckpoint{MachineState: NUMANodeMap{}, Entries: ContainerMemoryAssignments{},
		PodEntries: PodMemoryAssignments{}}
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, fmt.Errorf("is not a memory manager state: %w", err)
	}
	sum := c.Checksum
	c.Checksum = 0
	if err := check(sum, &c,
		&MemoryManagerCheckpointV1{PolicyName: c.PolicyName, MachineState: c.MachineState,
			Entries: c.Entries}); err != nil {
		return nil, err
	}
	found := map[types.UID]resource.Allocation{}
	for uid, containers := range c.Entries {
		a := resource.Allocation{Containers: map[string]resource.Holding{}}
		var err error
		if a.Pod.Memory, err = blocks(c.PodEntries[uid].MemoryBlocks); err != nil {
			return nil, fmt.Errorf("pod %s: %w", uid, err)
		}
		for name, list := range containers {
			all, err := blocks(list)
			if err != nil {
				return nil, fmt.Errorf("container %q of pod %s: %w", name, uid, err)
			}
			if len(all) > 0 && len(a.Pod.Memory) == 0 {
				a.Containers[name] = resource.Holding{Memory: all}
			}
		}
		if !a.IsEmpty() {
			found[types.UID(uid)] = a
		}
	}
	return found, nil
}

func blocks(list []Block) (all []memory.Block, err error) {
	for _, b := range list {
		block := memory.Block{Resource: b.Type, Size: int64(b.Size)}
		for _, id := range b.NUMAAffinity {
			if id < 0 || id > 63 || block.Size < 0 {
				return nil,
					fmt.Errorf("%d bytes of %s of NUMA node %d are not a valid amount of memory", b.Size, b.Type, id)
			}
			block.Nodes |= topology.Of(id)
		}
		all = append(all, block)
	}
	slices.SortFunc(all, func(a, b memory.Block) int { return strings.Compare(string(a.Resource), string(b.Resource)) })
	return all, nil
}

// check verifies a checksum. It accepts the hash of any of these values, under the type's present name or the name it
// had when its version was the newest. A file without a checksum is accepted.
func check(sum Checksum, values ...any) error {
	if sum == 0 {
		return nil
	}
	for _, v := range values {
		if text := hashInput(v); sum == checksum(text) || sum == checksum(originalName(text)) {
			return nil
		}
	}
	return fmt.Errorf("has checksum %d, which does not match its content", sum)
}

// hashInput returns the text that a kubelet hashes for the checksum of a value.
func hashInput(v any) string {
	return strings.NewReplacer("state.Checksum", "checksum.Checksum", "state.MemoryPodEntry",
		"state.PodEntry").Replace(dump.ForHash(v))
}

// originalName replaces the type name in a hash input by its name from when that version was the newest. Kubelets still
// write checksums under that name.
func originalName(text string) string {
	return strings.NewReplacer("CheckpointV1)", "Checkpoint)", "CheckpointV2)", "Checkpoint)").Replace(text)
}

func checksum(text string) Checksum {
	h := fnv.New32a()
	_, _ = h.Write([]byte(text)) // a hash never returns an error
	return Checksum(h.Sum32())
}

// Join merges CPUs and memory into one allocation for each pod.
func Join(cpus, memory map[types.UID]resource.Allocation) map[types.UID]resource.Allocation {
	all := maps.Clone(cpus)
	if all == nil {
		all = map[types.UID]resource.Allocation{}
	}
	for uid, m := range memory {
		a, ok := all[uid]
		if !ok {
			all[uid] = m
			continue
		}
		a = a.Clone()
		a.Pod.Memory = m.Pod.Memory
		for name, g := range m.Containers {
			both := a.Containers[name]
			both.Memory = g.Memory
			a.Containers[name] = both
		}
		all[uid] = a
	}
	return all
}
