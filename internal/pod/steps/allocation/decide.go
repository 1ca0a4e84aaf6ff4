package allocation

import (
	"errors"

	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/node"
	"github.com/berth-run/berth/internal/node/machine"
	"github.com/berth-run/berth/internal/node/resource"
	"github.com/berth-run/berth/internal/node/resource/cpu"
	"github.com/berth-run/berth/internal/node/resource/topology"
)

// NodeOf applies a configuration to a machine. If the machine cannot satisfy it, the error names the field.
func NodeOf(c config.Node, m machine.Machine, facts node.Facts) (resource.Node, error) {
	p := c.Pinning
	policy := resource.Policy{CPUs: p.CPUs, CPU: p.CPUOptions, Memory: p.Memory, ReservedMemory: p.ReservedMemory,
		Topology: p.Topology, NoPodLevel: p.NoPodLevel}
	errs := []error{topology.Check(p.Topology, m.Nodes)}
	if p.CPUs {
		milli := c.KubeReserved.Cpu().MilliValue() + c.SystemReserved.Cpu().MilliValue()
		var err error
		policy.ReservedCPUs, err = cpu.Reserve(m, p.CPUOptions, milli, p.ReservedCPUs)
		errs = append(errs, err, cpu.Check(p.CPUOptions, p.Topology.Policy, m))
	}
	if p.Memory {
		// The memory that the node reserves: capacity minus allocatable, without huge pages.
		short := facts.Capacity.Memory().Value() - facts.Allocatable.Memory().Value()
		for size, count := range m.HugePages() {
			short -= size * count
		}
		errs = append(errs, p.ReservedMemory.Check(m, short))
	}
	return resource.Node{Machine: m, Policy: policy}, errors.Join(errs...)
}
