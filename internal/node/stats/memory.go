package stats

import (
	"fmt"
	"sync"
	"time"

	"github.com/opencontainers/cgroups"

	"github.com/berth-run/berth/internal/base/cgroupfile"
	"github.com/berth-run/berth/internal/base/usage"
)

// Memory is the memory use of a cgroup in bytes.
type Memory struct {
	// Usage includes file pages. WorkingSet is the part that the kernel cannot reclaim easily.
	Usage, WorkingSet int64
	// Limit is 0 without a limit.
	Limit int64
}

// MemoryOf reads the memory use of a cgroup. The error is fs.ErrNotExist if the cgroup is gone.
func MemoryOf(g cgroupfile.Group) (Memory, error) {
	s, err := usage.Read(g, cgroups.Memory, time.Time{})
	if err != nil {
		return Memory{}, err
	}
	return memoryIn(s), nil
}

func memoryIn(s sample) Memory {
	m := Memory{Usage: int64(s.MemoryStats.Usage.Usage), WorkingSet: int64(s.WorkingSet())}
	if limit, ok := usage.Bounded(s.MemoryStats.Usage.Limit); ok {
		m.Limit = int64(limit)
	}
	return m
}

// MemoryMeter reads the memory use of one cgroup again and again. It keeps the cgroup open between two reads. It may be
// used by several goroutines.
type MemoryMeter struct {
	find func() (cgroupfile.Group, error)

	mu   sync.Mutex
	open *usage.Reader // nil before the first read, and when the cgroup is gone
}

// NewMemoryMeter returns a MemoryMeter that has opened nothing. It calls find at the first read, and again after a read
// that failed.
func NewMemoryMeter(find func() (cgroupfile.Group, error)) *MemoryMeter {
	return &MemoryMeter{find: find}
}

// Read reads the memory use. The error is that of find, or fs.ErrNotExist if the cgroup is gone. A cgroup that was
// removed and made again is read.
func (m *MemoryMeter) Read() (Memory, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.open != nil {
		if s, err := m.open.Read(time.Time{}); err == nil {
			return memoryIn(s), nil
		}
		m.open.Close()
		m.open = nil
	}
	g, err := m.find()
	if err != nil {
		return Memory{}, fmt.Errorf("find a cgroup: %w", err)
	}
	r, err := usage.Open(g, cgroups.Memory)
	if err != nil {
		return Memory{}, err
	}
	s, err := r.Read(time.Time{})
	if err != nil || s.MemoryStats.Usage.Usage == 0 {
		r.Close() // a Reader of a cgroup whose directory of memory is still being made reads 0 forever
		return memoryIn(s), err
	}
	m.open = r
	return memoryIn(s), nil
}
