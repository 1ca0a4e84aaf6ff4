package stats

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/cgroups"
	cgroupv1 "github.com/opencontainers/cgroups/fs"
	"github.com/opencontainers/cgroups/fs2"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/cgroupfile"
)

// sample is the usage of a cgroup at one moment.
type sample struct {
	at time.Time
	*cgroups.Stats
	unified bool
	// oomKills counts processes that the kernel killed in this cgroup because it was out of memory.
	oomKills uint64
}

// Which controllers to read. Each one costs file reads.
const (
	brief = cgroups.CPU | cgroups.Memory
	full  = brief | cgroups.IO | cgroups.Pids | cgroups.HugeTLB
)

// read samples a cgroup. The error is fs.ErrNotExist if the cgroup is gone.
func read(g cgroupfile.Group, what cgroups.Controller, now time.Time) (sample, error) {
	s := sample{at: now, unified: g.Unified}
	g = g.Present()
	if len(g.Dirs) == 0 {
		return s, fmt.Errorf("read a cgroup: %w", fs.ErrNotExist)
	}
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
		return s, fmt.Errorf("read a cgroup: %w", err)
	}
	if s.Stats, err = m.Stats(&cgroups.StatsOptions{Controllers: what}); err != nil {
		return s, fmt.Errorf("read a cgroup: %w", err)
	}
	if what == full {
		s.oomKills = oomKills(g)
	}
	return s, nil
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

// memory returns a value that cgroup v1 and v2 name differently.
func (s sample) memory(v1, v2 string) uint64 {
	if s.unified {
		return s.MemoryStats.Stats[v2]
	}
	return s.MemoryStats.Stats[v1]
}

// workingSet is memory that cannot be reclaimed easily: used memory without inactive file pages. cAdvisor and the
// Kubernetes metrics pipeline define it this way.
func (s sample) workingSet() uint64 {
	used, inactive := s.MemoryStats.Usage.Usage, s.memory("total_inactive_file", "inactive_file")
	return used - min(used, inactive)
}

func (s sample) rss() uint64 { return s.memory("total_rss", "anon") }

// swap returns the swapped-out bytes.
func (s sample) swap() uint64 {
	if s.unified { // for the root cgroup the library has only the sum
		return s.MemoryStats.SwapUsage.Usage - min(s.MemoryStats.SwapUsage.Usage, s.MemoryStats.Usage.Usage)
	}
	return s.memory("total_swap", "")
}

// Memory is the memory use of a cgroup in bytes.
type Memory struct {
	// Usage includes file pages. WorkingSet is the part that the kernel cannot reclaim easily.
	Usage, WorkingSet int64
	// Limit is 0 without a limit.
	Limit int64
}

// MemoryOf reads the memory use of a cgroup. The error is fs.ErrNotExist if the cgroup is gone.
func MemoryOf(g cgroupfile.Group) (Memory, error) {
	s, err := read(g, cgroups.Memory, time.Time{})
	if err != nil {
		return Memory{}, err
	}
	m := Memory{Usage: int64(s.MemoryStats.Usage.Usage), WorkingSet: int64(s.workingSet())}
	if limit, ok := bounded(s.MemoryStats.Usage.Limit); ok {
		m.Limit = int64(limit)
	}
	return m, nil
}

// ProcessesOf counts the processes of a cgroup and of the cgroups below it. A cgroup that is gone has none.
func ProcessesOf(g cgroupfile.Group) (count int64, err error) {
	dir, ok := g.Dir("pids")
	if !ok {
		if dir, ok = g.Dir("memory"); !ok {
			return 0, errors.New("count processes: the cgroup has no directory")
		}
	}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "cgroup.procs" {
			return err
		}
		text, err := os.ReadFile(path)
		count += int64(bytes.Count(text, []byte("\n")))
		return err
	})
	if err != nil && !gone(err) && !errors.Is(err, unix.ENODEV) {
		return count, fmt.Errorf("count processes: %w", err)
	}
	return count, nil
}

// bounded returns a limit, and false if it is unlimited: the kernel then reports "max" or the largest number of whole
// pages.
func bounded(limit uint64) (uint64, bool) {
	return limit, limit != 0 && limit < math.MaxInt64-(1<<16)
}

// work are the processes in a cgroup, without the cgroups below it.
type work struct {
	processes int
	first     int // a process id, 0 if there is none
	// files and sockets are the open files of all processes, and the sockets among them.
	files, sockets int
	// maxFiles is the soft limit of open files of the first process: -1 without a limit, 0 if it is unknown.
	maxFiles float64
}

// workOf reads the processes of a cgroup. Files of a process that ends meanwhile do not count.
func workOf(host string, g cgroupfile.Group) (w work) {
	dir, ok := g.Dir("pids")
	if !ok {
		if dir, ok = g.Dir("cpu"); !ok {
			return w
		}
	}
	f, err := os.Open(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return w
	}
	defer func() { _ = f.Close() }() // it was opened for reading only
	for lines := bufio.NewScanner(f); lines.Scan(); w.processes++ {
		pid, err := strconv.Atoi(lines.Text())
		if err != nil {
			continue
		}
		files, sockets := openFiles(filepath.Join(host, "proc", lines.Text(), "fd"))
		w.files, w.sockets = w.files+files, w.sockets+sockets
		if w.first == 0 {
			w.first, w.maxFiles = pid, maxFiles(filepath.Join(host, "proc", lines.Text(), "limits"))
		}
	}
	return w
}

// openFiles counts the open files of a process, and the sockets among them, see proc_pid_fd(5).
func openFiles(dir string) (files, sockets int) {
	f, err := os.Open(dir)
	if err != nil {
		return 0, 0
	}
	defer func() { _ = f.Close() }() // it was opened for reading only
	names, _ := f.Readdirnames(-1)   // the names that were read count
	for _, name := range names {
		target, err := os.Readlink(filepath.Join(dir, name))
		if err != nil {
			continue
		}
		files++
		if strings.HasPrefix(target, "socket:") {
			sockets++
		}
	}
	return files, sockets
}

// maxFiles reads the soft limit of open files from proc_pid_limits(5).
func maxFiles(path string) float64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		values, ok := strings.CutPrefix(line, "Max open files")
		fields := strings.Fields(values)
		if !ok || len(fields) == 0 {
			continue
		}
		if fields[0] == "unlimited" {
			return -1
		}
		n, _ := strconv.ParseFloat(fields[0], 64) // 0 if it is no number
		return n
	}
	return 0
}

// traffic has the counters of one network interface.
type traffic struct {
	name                                  string
	rxBytes, rxPackets, rxErrors, rxDrops uint64
	txBytes, txPackets, txErrors, txDrops uint64
}

// network reads the counters of the network namespace of a process, see proc_pid_net(5). It skips the loopback
// interface.
func network(host string, pid int) ([]traffic, error) {
	f, err := os.Open(filepath.Join(host, "proc", strconv.Itoa(pid), "net/dev"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was opened for reading only
	var all []traffic
	for lines := bufio.NewScanner(f); lines.Scan(); {
		name, rest, ok := strings.Cut(lines.Text(), ":")
		name = strings.TrimSpace(name)
		fields := strings.Fields(rest)
		if !ok || name == "lo" || len(fields) < 12 {
			continue
		}
		n := make([]uint64, len(fields))
		for i, field := range fields {
			if n[i], err = strconv.ParseUint(field, 10, 64); err != nil {
				return nil, fmt.Errorf("read the counters of interface %s: %w", name, err)
			}
		}
		all = append(all, traffic{
			name: name, rxBytes: n[0], rxPackets: n[1], rxErrors: n[2], rxDrops: n[3],
			txBytes: n[8], txPackets: n[9], txErrors: n[10], txDrops: n[11],
		})
	}
	return all, nil
}

// gone reports whether an error means that the measured thing no longer exists.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) }
