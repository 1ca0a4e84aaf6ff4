package cpu

import (
	"fmt"

	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/node/machine"
)

// Pool describes the CPUs that can be allocated.
type Pool struct {
	Machine machine.Machine
	// Reserved are never allocated, see Reserve.
	Reserved cpuset.CPUSet
	// Held are allocated exclusively to containers or pods.
	Held    cpuset.CPUSet
	Options Options
}

// Free are the CPUs that can be allocated.
func (p Pool) Free() cpuset.CPUSet {
	return p.Machine.Online().Difference(p.Reserved.Union(p.Held))
}

// Shared are the CPUs of the containers without exclusive CPUs. They include the reserved CPUs, except with
// strict-cpu-reservation (KEP-4540).
func (p Pool) Shared() cpuset.CPUSet {
	if p.Options.StrictReservation {
		return p.Free()
	}
	return p.Machine.Online().Difference(p.Held)
}

// Reserve returns the CPUs kept for the system and the agent. These are the CPUs of reservedSystemCPUs if set
// (explicit). Otherwise it takes the reserved amount (milli, in millicores, rounded up) from the lowest physical cores,
// as the options say. Reserving no CPU is an error, because containers without exclusive CPUs need one to run on.
func Reserve(m machine.Machine, o Options, milli int64, explicit cpuset.CPUSet) (cpuset.CPUSet, error) {
	all := m.Online()
	if !explicit.IsEmpty() {
		if missing := explicit.Difference(all); !missing.IsEmpty() {
			return cpuset.New(),
				fmt.Errorf(
					"reserve CPUs: reservedSystemCPUs names %s, which are not online: the online "+
						"CPUs are %s", missing, all)
		}
		return explicit, nil
	}
	n := int((milli + 999) / 1000)
	switch {
	case n < 1:
		return cpuset.New(),
			fmt.Errorf(
				"reserve CPUs: cpuManagerPolicy static needs a CPU that is never allocated; next: set cpu in " +
					"systemReserved " +
					"or kubeReserved, or reservedSystemCPUs")
	case n > all.Size():
		return cpuset.New(),
			fmt.Errorf("reserve CPUs: systemReserved and kubeReserved are %d CPUs together, the machine has %d", n,
				all.Size())
	}
	l := newLayout(m)
	chosen, err := l.take(l.rules(o).split(), l.places(all), n)
	if err != nil {
		return cpuset.New(), fmt.Errorf("reserve %d CPUs: %w", n, err)
	}
	return l.set(chosen), nil
}
