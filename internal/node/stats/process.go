package stats

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/cgroups"

	"github.com/berth-run/berth/internal/base/cgroupfile"
	"github.com/berth-run/berth/internal/base/usage"
)

// part samples a part of the system. It also returns when the part started.
func (s *Stats) part(p Part) (sample, time.Time, error) {
	if p.PID == 0 {
		v, err := usage.Read(p.Group, usage.Brief, s.Now())
		return v, BootTime(s.Host), err
	}
	v, started, err := process(s.Host, p.PID, s.Now())
	if err != nil {
		return v, started, err
	}
	if g, ok := s.groupOf(p.PID); ok {
		v, err = usage.Read(g, usage.Brief, s.Now())
	}
	return v, started, err
}

// groupOf returns the cgroup of a process, see cgroups(7). It returns false if the process is in the root cgroup of the
// CPU or memory controller, or in a cgroup that is not visible here.
func (s *Stats) groupOf(pid int) (cgroupfile.Group, bool) {
	at, err := cgroups.ParseCgroupFile(filepath.Join(s.Host, "proc", strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return cgroupfile.Group{}, false
	}
	g := cgroupfile.Group{Unified: s.Root.Unified, Dirs: map[string]string{}}
	for controller, dir := range s.Root.Dirs {
		if below := at[controller]; below != "" && below != "/" {
			g.Dirs[controller] = filepath.Join(dir, below)
		}
	}
	g = g.Present()
	_, cpu := g.Dir("cpuacct")
	_, memory := g.Dir("memory")
	return g, cpu && memory
}

// Fields of proc_pid_stat(5), counted after the name of the command.
const (
	minorFaults = 7
	majorFaults = 9
	userTime    = 11
	systemTime  = 12
	startTime   = 19
)

// ticks per second in times of the kernel (USER_HZ).
const ticks = 100

// process returns the usage and the start time of one process.
func process(host string, pid int, now time.Time) (sample, time.Time, error) {
	dir := filepath.Join(host, "proc", strconv.Itoa(pid))
	text, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return sample{}, time.Time{}, err
	}
	_, rest, _ := strings.Cut(string(text[max(0, strings.LastIndexByte(string(text), ')')):]), " ")
	fields := strings.Fields(rest)
	if len(fields) <= startTime {
		return sample{}, time.Time{}, fmt.Errorf("read usage of process %d: %w", pid, fs.ErrInvalid)
	}
	n := func(field int) uint64 {
		v, _ := strconv.ParseUint(fields[field], 10, 64)
		return v
	}
	resident := kilobytes(filepath.Join(dir, "status"), "VmRSS")
	used := &cgroups.Stats{MemoryStats: cgroups.MemoryStats{
		Usage:     cgroups.MemoryData{Usage: resident},
		SwapUsage: cgroups.MemoryData{Usage: resident + kilobytes(filepath.Join(dir, "status"), "VmSwap")},
		Stats: map[string]uint64{"anon": kilobytes(filepath.Join(dir, "status"), "RssAnon"),
			"pgfault": n(minorFaults) + n(majorFaults), "pgmajfault": n(majorFaults)},
	}}
	used.CpuStats.CpuUsage.TotalUsage = (n(userTime) + n(systemTime)) * uint64(time.Second/ticks)
	return sample{At: now, Stats: used, Unified: true},
		BootTime(host).Add(time.Duration(n(startTime)) * (time.Second / ticks)), nil
}
