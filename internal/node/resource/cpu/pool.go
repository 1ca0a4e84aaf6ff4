package cpu

import (
	"fmt"

	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/node/machine"
)

// Pool is what there is to give, and what is not.
type Pool struct {
	Machine machine.Machine
	// Reserved are never given away, see Reserve.
	Reserved cpuset.CPUSet
	// Held are given exclusively, to containers or to pods.
	Held    cpuset.CPUSet
	Options Options
}

// Free are the CPUs that may be given away.
func (p Pool) Free() cpuset.CPUSet {
	return p.Machine.Online().Difference(p.Reserved.Union(p.Held))
}

// Shared are the CPUs of all containers that hold none for themselves: also the
// reserved ones, but with strict-cpu-reservation (KEP-4540).
func (p Pool) Shared() cpuset.CPUSet {
	if p.Options.StrictReservation {
		return p.Free()
	}
	return p.Machine.Online().Difference(p.Held)
}

// Reserve are the CPUs kept for the system and the agent: those of
// reservedSystemCPUs if any are named, else the reserved amount in 1/1000 CPUs,
// rounded up, from the lowest physical cores. The options take part as they do
// in giving CPUs away. Reserving nothing is an error, as the containers that hold
// no CPU for themselves need one to run on.
func Reserve(m machine.Machine, o Options, milli int64, explicit cpuset.CPUSet) (cpuset.CPUSet, error) {
	all := m.Online()
	if !explicit.IsEmpty() {
		if missing := explicit.Difference(all); !missing.IsEmpty() {
			return cpuset.New(),
				fmt.Errorf(
					"reserve CPUs: reservedSystemCPUs names %s, which the machine does not have online: its "+
						"CPUs are %s", missing, all)
		}
		return explicit, nil
	}
	n := int((milli + 999) / 1000)
	switch {
	case n < 1:
		return cpuset.New(),
			fmt.Errorf(
				"reserve CPUs: cpuManagerPolicy static needs a CPU that is not given away: set cpu in systemReserved " +
					"or kubeReserved, or reservedSystemCPUs")
	case n > all.Size():
		return cpuset.New(),
			fmt.Errorf("reserve CPUs: systemReserved and kubeReserved are %d CPUs together, the machine has %d", n,
				all.Size())
	}
	l := newLayout(m)
	taken, err := l.take(l.rules(o).split(), l.places(all), n)
	if err != nil {
		return cpuset.New(), fmt.Errorf("reserve %d CPUs: %w", n, err)
	}
	return l.set(taken), nil
}
