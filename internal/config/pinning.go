package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/base/cpulist"
	"github.com/berth-run/berth/internal/config/gate"
	"github.com/berth-run/berth/internal/node/machine"
	"github.com/berth-run/berth/internal/node/resource/cpu"
	"github.com/berth-run/berth/internal/node/resource/memory"
	"github.com/berth-run/berth/internal/node/resource/topology"
)

// Pinning configures which containers get exclusive CPUs and memory. The zero value pins none, but needs a
// ReconcilePeriod. Pod-level resources (KEP-5526) have no switch of their own: they follow these policies.
type Pinning struct {
	// CPUs is cpuManagerPolicy static. CPUOptions are its options.
	CPUs       bool
	CPUOptions cpu.Options
	// ReservedCPUs is reservedSystemCPUs. Empty stands for the lowest CPUs, as many as kubeReserved and
	// systemReserved add up to.
	ReservedCPUs cpuset.CPUSet
	// ReconcilePeriod is the longest time that a change of a container's CPUs from outside can persist. Such a change
	// is usually noticed at once. The period covers changes without a notification. Default 10 s.
	ReconcilePeriod time.Duration
	// Memory is memoryManagerPolicy Static.
	Memory bool
	// ReservedMemory is reservedMemory. It has no effect without Memory.
	ReservedMemory memory.Reserved
	Topology       topology.Options
	// NoPodLevel gives nothing exclusively to pods with pod-level resources (feature gate PodLevelResourceManagers:
	// false).
	NoPodLevel bool
}

// Audit returns the time in which each cgroup is checked for changes from outside, or 0 for the usual time. As in the
// kubelet, cpuManagerReconcilePeriod has an effect with the static policy only.
func (p Pinning) Audit() time.Duration {
	if p.CPUs {
		return p.ReconcilePeriod
	}
	return 0
}

// readPinning reads the settings for CPUs, memory and topology. Settings that depend on the machine are checked
// later, when the agent has read the machine.
func readPinning(in *input, n *Node) Pinning {
	kc := in.kc
	p := Pinning{
		ReconcilePeriod: in.Duration("cpuManagerReconcilePeriod", kc.CPUManagerReconcilePeriod),
		ReservedMemory:  readReservedMemory(in),
		Topology:        readTopology(in),
	}
	p.CPUs = in.OneOf("cpuManagerPolicy", kc.CPUManagerPolicy, "none", "static") == "static"
	p.Memory = in.OneOf("memoryManagerPolicy", kc.MemoryManagerPolicy, "None", "Static") == "Static"
	readReservedCPUs(in, &p, n)
	if len(kc.CPUManagerPolicyOptions) > 0 && !p.CPUs {
		in.Invalid("cpuManagerPolicyOptions", kc.CPUManagerPolicyOptions,
			"must be left out unless cpuManagerPolicy is static")
	}
	p.NoPodLevel = gate.Read(kc).Resources.PodHolds
	var err error
	if p.CPUOptions, err = cpu.ParseOptions(kc.CPUManagerPolicyOptions); err == nil {
		err = cpu.Check(p.CPUOptions, p.Topology.Policy, machine.Machine{})
	}
	if err != nil {
		in.Invalid("cpuManagerPolicyOptions", kc.CPUManagerPolicyOptions, "%s",
			strings.TrimPrefix(err.Error(), "cpuManagerPolicyOptions: "))
	}
	if p.CPUs && milliCPU(n.KubeReserved)+milliCPU(n.SystemReserved) == 0 {
		in.Invalid("cpuManagerPolicy", kc.CPUManagerPolicy,
			"needs at least one CPU that pods cannot get: set reservedSystemCPUs, or cpu in systemReserved or "+
				"kubeReserved")
	}
	if p.Memory && len(p.ReservedMemory) == 0 {
		in.Invalid("memoryManagerPolicy", kc.MemoryManagerPolicy,
			"needs reservedMemory: as much memory on all NUMA nodes together as kubeReserved, systemReserved and "+
				"evictionHard (memory.available) take")
	}
	return p
}

func milliCPU(list corev1.ResourceList) int64 { return list.Cpu().MilliValue() }

// readReservedCPUs lets reservedSystemCPUs replace the CPUs in kubeReserved and systemReserved, as in the kubelet.
func readReservedCPUs(in *input, p *Pinning, n *Node) {
	kc := in.kc
	if kc.ReservedSystemCPUs == "" {
		return
	}
	set, err := cpulist.Set(kc.ReservedSystemCPUs)
	switch {
	case err != nil || set.IsEmpty():
		in.Invalid("reservedSystemCPUs", kc.ReservedSystemCPUs, "must be a list of CPUs such as 0-3,8")
		return
	case kc.SystemReservedCgroup != "" || kc.KubeReservedCgroup != "":
		in.Invalid("reservedSystemCPUs", kc.ReservedSystemCPUs,
			"must be left out with systemReservedCgroup or kubeReservedCgroup")
	}
	p.ReservedCPUs = set
	delete(n.KubeReserved, corev1.ResourceCPU)
	n.SystemReserved[corev1.ResourceCPU] = *resource.NewQuantity(int64(set.Size()), resource.DecimalSI)
}

func readReservedMemory(in *input) memory.Reserved {
	var all memory.Reserved
	for i, r := range in.kc.ReservedMemory {
		path := fmt.Sprintf("reservedMemory[%d]", i)
		id := int(r.NumaNode)
		for _, name := range slices.Sorted(maps.Keys(r.Limits)) {
			q := r.Limits[name]
			if name != corev1.ResourceMemory && !strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
				in.Invalid(path, name, "must be memory or hugepages- and a size, such as hugepages-2Mi")
			}
			if q.Sign() <= 0 {
				in.Invalid(path, q.String(), "must be more than 0 of %s", name)
			}
			if _, twice := all[id][name]; twice {
				in.Invalid(path, id, "must be the only entry of this NUMA node for %s", name)
			}
			if all == nil {
				all = memory.Reserved{}
			}
			if all[id] == nil {
				all[id] = map[corev1.ResourceName]int64{}
			}
			all[id][name] = q.Value()
		}
	}
	return all
}

// readTopology checks the options for every policy, so that a wrong option is found before the policy that uses it is
// turned on.
func readTopology(in *input) topology.Options {
	kc := in.kc
	known := []string{string(topology.None), string(topology.BestEffort), string(topology.Restricted),
		string(topology.SingleNUMANode)}
	o := topology.Options{
		Policy:   topology.Policy(in.OneOf("topologyManagerPolicy", kc.TopologyManagerPolicy, known...)),
		Scope:    in.OneOf("topologyManagerScope", kc.TopologyManagerScope, topology.ScopeContainer, topology.ScopePod),
		MaxNodes: topology.DefaultMaxNodes,
	}
	const closest, most = "prefer-closest-numa-nodes", "max-allowable-numa-nodes"
	for _, name := range slices.Sorted(maps.Keys(kc.TopologyManagerPolicyOptions)) {
		value := kc.TopologyManagerPolicyOptions[name]
		path := "topologyManagerPolicyOptions[" + name + "]"
		var err error
		switch name {
		case closest:
			if o.PreferClosest, err = strconv.ParseBool(value); err != nil {
				in.Invalid(path, value, "must be true or false")
			}
		case most:
			if o.MaxNodes, err = strconv.Atoi(value); err != nil || o.MaxNodes < topology.DefaultMaxNodes {
				in.Invalid(path, value, "must be a number of at least %d", topology.DefaultMaxNodes)
			}
		default:
			in.Add(field.ErrorList{field.NotSupported(field.NewPath("topologyManagerPolicyOptions"), name,
				[]string{most, closest})})
		}
	}
	return o
}
