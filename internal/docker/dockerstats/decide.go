package dockerstats

import (
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/opencontainers/cgroups"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/cgroupfile"
	"github.com/berth-run/berth/internal/base/usage"
)

func value(n uint64) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: n} }

// group returns the cgroup of a container. at are the paths of its first process by controller; "" is version 2. The
// error is fs.ErrNotExist if none of them is the container's.
func group(root string, at map[string]string, container string) (cgroupfile.Group, error) {
	g := cgroupfile.Group{Dirs: map[string]string{}}
	for controller, path := range at {
		if !strings.Contains(filepath.Base(path), container) {
			continue
		}
		g.Dirs[controller] = filepath.Join(root, controller, path)
	}
	if len(g.Dirs) == 0 {
		return g, fs.ErrNotExist
	}
	if dir, ok := g.Dirs[""]; ok && len(g.Dirs) == 1 {
		g.Unified, g.Dirs[""] = true, dir
		return g, nil
	}
	delete(g.Dirs, "") // a hybrid hierarchy has no controllers there
	return g, nil
}

// memory returns the memory usage of a cgroup. AvailableBytes is set only if the cgroup has a limit.
func memory(v usage.Sample) *runtimeapi.MemoryUsage {
	m := &runtimeapi.MemoryUsage{
		Timestamp: v.At.UnixNano(), UsageBytes: value(v.MemoryStats.Usage.Usage),
		WorkingSetBytes: value(v.WorkingSet()), RssBytes: value(v.RSS()),
		PageFaults:      value(v.Memory("total_pgfault", "pgfault")),
		MajorPageFaults: value(v.Memory("total_pgmajfault", "pgmajfault")), Psi: psi(v.MemoryStats.PSI),
	}
	if limit, ok := usage.Bounded(v.MemoryStats.Usage.Limit); ok {
		m.AvailableBytes = value(limit - min(limit, v.WorkingSet()))
	}
	return m
}

func swap(v usage.Sample) *runtimeapi.SwapUsage {
	s := &runtimeapi.SwapUsage{Timestamp: v.At.UnixNano(), SwapUsageBytes: value(v.Swap())}
	if limit, ok := v.SwapLimit(); ok {
		s.SwapAvailableBytes = value(limit - min(limit, v.Swap()))
	}
	return s
}

// io returns the pressure of I/O. nil: the kernel does not count it.
func io(v usage.Sample) *runtimeapi.IoUsage {
	if v.BlkioStats.PSI == nil {
		return nil
	}
	return &runtimeapi.IoUsage{Timestamp: v.At.UnixNano(), Psi: psi(v.BlkioStats.PSI)}
}

func psi(p *cgroups.PSIStats) *runtimeapi.PsiStats {
	if p == nil {
		return nil
	}
	data := func(d cgroups.PSIData) *runtimeapi.PsiData {
		const us = 1000 // the kernel counts microseconds
		return &runtimeapi.PsiData{Total: d.Total * us, Avg10: d.Avg10, Avg60: d.Avg60, Avg300: d.Avg300}
	}
	return &runtimeapi.PsiStats{Full: data(p.Full), Some: data(p.Some)}
}

// networkUsage returns the usage of a network. The default interface is eth0, else the first one.
func networkUsage(all []usage.Traffic, now time.Time) *runtimeapi.NetworkUsage {
	n := &runtimeapi.NetworkUsage{Timestamp: now.UnixNano()}
	for i, t := range all {
		one := &runtimeapi.NetworkInterfaceUsage{
			Name: t.Name, RxBytes: value(t.RxBytes), RxErrors: value(t.RxErrors), TxBytes: value(t.TxBytes),
			TxErrors: value(t.TxErrors),
		}
		n.Interfaces = append(n.Interfaces, one)
		if i == 0 || t.Name == "eth0" {
			n.DefaultInterface = one
		}
	}
	return n
}

// add returns the sum of two samples, with the values that are reported of a pod. It leaves out values without a sum:
// pressure, and the limit of memory.
func add(a, b usage.Sample) usage.Sample {
	sum := usage.Sample{At: a.At, Unified: b.Unified, OOMKills: a.OOMKills + b.OOMKills, Stats: cgroups.NewStats()}
	sum.CpuStats.CpuUsage.TotalUsage = a.CpuStats.CpuUsage.TotalUsage + b.CpuStats.CpuUsage.TotalUsage
	sum.CpuStats.CpuUsage.UsageInUsermode = a.CpuStats.CpuUsage.UsageInUsermode + b.CpuStats.CpuUsage.UsageInUsermode
	sum.CpuStats.CpuUsage.UsageInKernelmode =
		a.CpuStats.CpuUsage.UsageInKernelmode + b.CpuStats.CpuUsage.UsageInKernelmode
	sum.MemoryStats.Usage.Usage = a.MemoryStats.Usage.Usage + b.MemoryStats.Usage.Usage
	sum.MemoryStats.SwapUsage.Usage = a.MemoryStats.SwapUsage.Usage + b.MemoryStats.SwapUsage.Usage
	sum.PidsStats.Current = a.PidsStats.Current + b.PidsStats.Current
	for _, one := range []usage.Sample{a, b} {
		for name, n := range one.MemoryStats.Stats {
			sum.MemoryStats.Stats[name] += n
		}
	}
	return sum
}

// upperOf returns the directory of the writable layer of a process. mountinfo lists the process's mounts
// (proc_pid_mountinfo(5)). The directory belongs to the overlay at the process's root. It is empty for another kind of
// file system.
func upperOf(mountinfo string) string {
	for line := range strings.Lines(mountinfo) {
		at, file, found := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
		fields, kinds := strings.Fields(at), strings.Fields(file)
		if !found || len(fields) < 5 || fields[4] != "/" || len(kinds) < 3 || kinds[0] != "overlay" {
			continue
		}
		for option := range strings.SplitSeq(kinds[2], ",") {
			if dir, ok := strings.CutPrefix(option, "upperdir="); ok {
				return dir
			}
		}
	}
	return ""
}
