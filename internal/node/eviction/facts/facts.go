package facts

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/berth-run/berth/internal/base/cgroupfile"
	"github.com/berth-run/berth/internal/node/eviction"
	"github.com/berth-run/berth/internal/node/stats"
)

// Groups finds cgroups.
type Groups interface {
	// Machine is the root cgroup. Pods is the cgroup of all pods.
	Machine() (cgroupfile.Group, error)
	Pods() (cgroupfile.Group, error)
}

// Machine reads the signals of this machine. It implements eviction.Facts. It may be used by several goroutines.
type Machine struct {
	machine, pods *stats.MemoryMeter
	capacity      int64
}

// NewMachine returns the Machine with the given cgroups. memory is the machine's memory in bytes.
func NewMachine(groups Groups, memory int64) Machine {
	return Machine{stats.NewMemoryMeter(groups.Machine), stats.NewMemoryMeter(groups.Pods), memory}
}

// Observe implements eviction.Facts.
func (m Machine) Observe(now time.Time) (eviction.Observations, error) {
	all := eviction.Observations{}
	return all, errors.Join(m.memory(all, now), m.allocatable(all, now), m.pids(all, now))
}

// pids observes pid.available: the processes and threads that the machine may still start.
func (m Machine) pids(all eviction.Observations, now time.Time) error {
	limit, err := stats.ProcessLimit("/", now)
	if err != nil {
		return fmt.Errorf("read %s: %w", eviction.PIDAvailable, err)
	}
	all[eviction.PIDAvailable] = eviction.Observation{Available: *limit.MaxPID - *limit.NumOfRunningProcesses,
		Capacity: *limit.MaxPID, At: now}
	return nil
}

// memory observes memory.available: the machine's memory without the working set of the root cgroup.
func (m Machine) memory(all eviction.Observations, now time.Time) error {
	used, err := m.machine.Read()
	if err != nil {
		return fmt.Errorf("read %s: %w", eviction.MemoryAvailable, err)
	}
	all[eviction.MemoryAvailable] = eviction.Observation{Available: m.capacity - used.WorkingSet, Capacity: m.capacity,
		Usage: used.Usage, At: now}
	return nil
}

// allocatable observes allocatableMemory.available: the limit of the cgroup of all pods without its working set.
// Without a limit, or before the first pod, there is no such signal.
func (m Machine) allocatable(all eviction.Observations, now time.Time) error {
	used, err := m.pods.Read()
	if errors.Is(err, fs.ErrNotExist) || err == nil && used.Limit == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", eviction.AllocatableMemoryAvailable, err)
	}
	all[eviction.AllocatableMemoryAvailable] = eviction.Observation{Available: used.Limit - used.WorkingSet,
		Capacity: used.Limit, Usage: used.Usage, At: now}
	return nil
}
