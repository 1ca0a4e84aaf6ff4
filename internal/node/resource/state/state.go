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

	"github.com/berth-run/berth/internal/node/resource"
	"github.com/berth-run/berth/internal/node/resource/memory"
	"github.com/berth-run/berth/internal/node/resource/topology"
)

// The names of a kubelet's files in its root directory.
const (
	CPUFile    = "cpu_manager_state"
	MemoryFile = "memory_manager_state"
)

// The types below have the names and fields that the kubelet's checksum is made
// of: FNV-1a of a dump of the value, type names included.

// Checksum of a file; 0: none.
type Checksum uint64

// PodCPUAssignments are pod-level CPUs by pod.
type PodCPUAssignments map[string]PodEntry

// PodEntry are the CPUs of a pod as a whole.
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
	e.CPUSet, err = cpuset.Parse(raw.CPUSet)
	return err
}

// CPUManagerCheckpoint is version 3; version 2 is the same without PodEntries.
type CPUManagerCheckpoint struct {
	PolicyName    string
	DefaultCPUSet string                       `json:"defaultCpuSet"`
	Entries       map[string]map[string]string `json:"entries"`
	PodEntries    PodCPUAssignments            `json:"podEntries"`
	Checksum      Checksum
}

// CPUManagerCheckpointV2 has the name that it had when it was the newest.
type CPUManagerCheckpointV2 struct {
	PolicyName    string                       `json:"policyName"`
	DefaultCPUSet string                       `json:"defaultCpuSet"`
	Entries       map[string]map[string]string `json:"entries"`
	Checksum      Checksum                     `json:"checksum"`
}

// CPUManagerCheckpointV1 has its entries by container id.
type CPUManagerCheckpointV1 struct {
	PolicyName    string
	DefaultCPUSet string `json:"defaultCpuSet"`
	Entries       map[string]string
	Checksum      Checksum
}

// ParseCPUs reads a cpu_manager_state of any version into what pods hold. Of
// version 1, which knows containers by the ids of their instances only, nothing is
// known by pod.
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
		return nil, fmt.Errorf("is no state of CPUs: %w", err)
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
		a := resource.Allocation{Containers: map[string]resource.Given{},
			Pod: resource.Given{CPUs: c.PodEntries[uid].CPUSet}}
		times := map[string]int{}
		for _, list := range containers {
			times[list]++
		}
		for name, list := range containers {
			set, err := cpuset.Parse(list)
			if err != nil {
				return nil, fmt.Errorf("container %q of pod %s: %w", name, uid, err)
			}
			if !set.IsEmpty() && (times[list] == 1 || a.Pod.CPUs.IsEmpty()) { // else they share it
				a.Containers[name] = resource.Given{CPUs: set}
			}
		}
		if !a.IsEmpty() {
			found[types.UID(uid)] = a
		}
	}
	return found, nil
}

// MemoryTable is what a node has of one resource, in bytes.
type MemoryTable struct {
	TotalMemSize   uint64 `json:"total"`
	SystemReserved uint64 `json:"systemReserved"`
	Allocatable    uint64 `json:"allocatable"`
	Reserved       uint64 `json:"reserved"`
	Free           uint64 `json:"free"`
}

// NUMANodeState is one NUMA node.
type NUMANodeState struct {
	NumberOfAssignments int                                  `json:"numberOfAssignments"`
	MemoryMap           map[corev1.ResourceName]*MemoryTable `json:"memoryMap"`
	Cells               []int                                `json:"cells"`
}

// NUMANodeMap is by node id.
type NUMANodeMap map[int]*NUMANodeState

// Block is an amount of memory of some nodes.
type Block struct {
	NUMAAffinity []int               `json:"numaAffinity"`
	Type         corev1.ResourceName `json:"type"`
	Size         uint64              `json:"size"`
}

// ContainerMemoryAssignments are by pod and container.
type ContainerMemoryAssignments map[string]map[string][]Block

// PodMemoryAssignments are by pod.
type PodMemoryAssignments map[string]MemoryPodEntry

// MemoryPodEntry is the memory of a pod as a whole.
type MemoryPodEntry struct{ MemoryBlocks []Block }

// MemoryManagerCheckpoint is version 2; version 1 is the same without PodEntries.
type MemoryManagerCheckpoint struct {
	PolicyName   string
	MachineState NUMANodeMap
	Entries      ContainerMemoryAssignments
	PodEntries   PodMemoryAssignments
	Checksum     Checksum
}

// MemoryManagerCheckpointV1 has the name that it had when it was the newest.
type MemoryManagerCheckpointV1 struct {
	PolicyName   string                     `json:"policyName"`
	MachineState NUMANodeMap                `json:"machineState"`
	Entries      ContainerMemoryAssignments `json:"entries"`
	Checksum     Checksum                   `json:"checksum"`
}

// ParseMemory reads a memory_manager_state of any version into what pods hold.
func ParseMemory(text []byte) (map[types.UID]resource.Allocation, error) {
	c := MemoryManagerCheckpoint{MachineState: NUMANodeMap{}, Entries: ContainerMemoryAssignments{},
		PodEntries: PodMemoryAssignments{}}
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, fmt.Errorf("is no state of memory: %w", err)
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
		a := resource.Allocation{Containers: map[string]resource.Given{}}
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
				a.Containers[name] = resource.Given{Memory: all}
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
				return nil, fmt.Errorf("%d bytes of %s of NUMA node %d are no amount of memory", b.Size, b.Type, id)
			}
			block.Nodes |= topology.Of(id)
		}
		all = append(all, block)
	}
	slices.SortFunc(all, func(a, b memory.Block) int { return strings.Compare(string(a.Resource), string(b.Resource)) })
	return all, nil
}

// check compares a checksum with those that a kubelet may have written: of the
// value as one of these types, under the type's name then or now. A file without
// a checksum is taken as it is.
func check(sum Checksum, values ...any) error {
	if sum == 0 {
		return nil
	}
	for _, v := range values {
		if text := dumped(v); sum == checksum(text) || sum == checksum(then(text)) {
			return nil
		}
	}
	return fmt.Errorf("has checksum %d, which is not that of what it holds", sum)
}

// dumped is what a kubelet makes the checksum of a value of.
func dumped(v any) string {
	return strings.NewReplacer("state.Checksum", "checksum.Checksum", "state.MemoryPodEntry",
		"state.PodEntry").Replace(dump.ForHash(v))
}

// then is the same as it was when the version was the newest, and as kubelets go on
// to write it.
func then(text string) string {
	return strings.NewReplacer("CheckpointV1)", "Checkpoint)", "CheckpointV2)", "Checkpoint)").Replace(text)
}

func checksum(text string) Checksum {
	h := fnv.New32a()
	_, _ = h.Write([]byte(text)) // a hash takes all
	return Checksum(h.Sum32())
}

// Join has the CPUs of one and the memory of the other of each pod.
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
