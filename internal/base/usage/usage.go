package usage

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/cgroups"
	cgroupv1 "github.com/opencontainers/cgroups/fs"
	"github.com/opencontainers/cgroups/fs2"

	"github.com/berth-run/berth/internal/base/cgroupfile"
)

// Sample is the usage of a cgroup at one moment.
type Sample struct {
	At time.Time
	*cgroups.Stats
	Unified bool
	// OOMKills counts processes that the kernel killed in this cgroup because it was out of memory.
	OOMKills uint64
}

// Which controllers to read. Each one costs file reads.
const (
	// Brief is CPU time and memory. On version 1, the parts of the CPU time and the counters of hit limits are 0: only
	// Full reads them.
	Brief = cgroups.CPU | cgroups.Memory
	Full  = Brief | cgroups.IO | cgroups.Pids | cgroups.HugeTLB
)

// Read samples a cgroup once. The error is fs.ErrNotExist if the cgroup is gone.
func Read(g cgroupfile.Group, what cgroups.Controller, now time.Time) (Sample, error) {
	r, err := Open(g, what)
	if err != nil {
		return Sample{At: now, Unified: g.Unified}, err
	}
	defer r.Close()
	return r.Read(now)
}

// relevant is the group with only those controllers whose files are read.
func relevant(g cgroupfile.Group) cgroupfile.Group {
	if g.Unified {
		return g
	}
	some := cgroupfile.Group{Dirs: map[string]string{}}
	for _, c := range []string{"cpu", "cpuacct", "memory", "blkio", "pids", "hugetlb"} {
		if dir, ok := g.Dirs[c]; ok {
			some.Dirs[c] = dir
		}
	}
	return some
}

// library reads all files of some controllers.
func library(g cgroupfile.Group, what cgroups.Controller) (*cgroups.Stats, error) {
	var m interface {
		Stats(*cgroups.StatsOptions) (*cgroups.Stats, error)
	}
	var err error
	if g.Unified {
		m, err = fs2.NewManager(&cgroups.Cgroup{Resources: &cgroups.Resources{}}, g.Dirs[""])
	} else {
		m, err = cgroupv1.NewManager(&cgroups.Cgroup{Resources: &cgroups.Resources{}}, g.Dirs)
	}
	if err != nil {
		return nil, err
	}
	return m.Stats(&cgroups.StatsOptions{Controllers: what})
}

// oomKills reads memory.events, or memory.oom_control (since Linux 4.13). It is 0 if the kernel does not count.
func oomKills(g cgroupfile.Group) uint64 {
	dir, ok := g.Dir("memory")
	if !ok {
		return 0
	}
	file := "memory.oom_control"
	if g.Unified {
		file = "memory.events"
	}
	text, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(text) {
		if value, ok := strings.CutPrefix(string(line), "oom_kill "); ok {
			n, _ := strconv.ParseUint(strings.TrimSpace(value), 10, 64)
			return n
		}
	}
	return 0
}

// Memory returns a value that cgroup v1 and v2 name differently.
func (s Sample) Memory(v1, v2 string) uint64 {
	if s.Unified {
		return s.MemoryStats.Stats[v2]
	}
	return s.MemoryStats.Stats[v1]
}

// WorkingSet is memory that cannot be reclaimed easily: used memory without inactive file pages. cAdvisor and the
// Kubernetes metrics pipeline define it this way.
func (s Sample) WorkingSet() uint64 {
	used, inactive := s.MemoryStats.Usage.Usage, s.Memory("total_inactive_file", "inactive_file")
	return used - min(used, inactive)
}

// RSS returns the anonymous memory in bytes.
func (s Sample) RSS() uint64 { return s.Memory("total_rss", "anon") }

// Swap returns the swapped-out bytes.
func (s Sample) Swap() uint64 {
	if s.Unified { // for the root cgroup the library has only the sum
		return s.MemoryStats.SwapUsage.Usage - min(s.MemoryStats.SwapUsage.Usage, s.MemoryStats.Usage.Usage)
	}
	return s.Memory("total_swap", "")
}

// SwapLimit returns how much a cgroup may swap out. It is false if there is no limit.
func (s Sample) SwapLimit() (uint64, bool) {
	if s.Unified { // 0 means that the cgroup may not or cannot swap
		limit := s.MemoryStats.SwapOnlyUsage.Limit
		return limit, limit < math.MaxInt64-(1<<16)
	}
	all, ok := Bounded(s.MemoryStats.SwapUsage.Limit)
	memory, both := Bounded(s.MemoryStats.Usage.Limit)
	if !ok || !both {
		return 0, false
	}
	return all - min(all, memory), true
}

// Bounded returns a limit, and false if it is unlimited: the kernel then reports "max" or the largest number of whole
// pages.
func Bounded(limit uint64) (uint64, bool) {
	return limit, limit != 0 && limit < math.MaxInt64-(1<<16)
}
