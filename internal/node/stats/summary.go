package stats

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/berth-run/berth/internal/base/usage"
)

// Summary returns /stats/summary, or only its CPU and memory part (only_cpu_and_memory).
func (s *Stats) Summary(ctx context.Context, onlyCPUAndMemory bool) (*statsapi.Summary, error) {
	what := usage.Full
	if onlyCPUAndMemory {
		what = usage.Brief
	}
	root, err := s.root(what)
	if err != nil {
		return nil, err
	}
	pods, err := s.scan(what)
	if err != nil {
		s.Log.Warn("cannot read the usage of some pods, leaving it out", "err", err)
	}
	sum := &statsapi.Summary{Node: statsapi.NodeStats{
		NodeName: s.Node, StartTime: metav1.NewTime(BootTime(s.Host)),
		CPU: s.cpu("node", root, time.Time{}), Memory: s.nodeMemory(root), Swap: swapStats(root, s.swapTotal()),
	}}
	sum.Node.SystemContainers = s.system()
	var layers map[string]Layer
	if !onlyCPUAndMemory {
		s.nodeRest(ctx, &sum.Node, root)
		layers = s.layers(ctx)
	}
	for _, p := range pods {
		sum.Pods = append(sum.Pods, s.podStats(ctx, p, onlyCPUAndMemory, layers))
	}
	s.forgetOld()
	return sum, nil
}

// system returns the usage of the agent, the runtime and all pods together.
func (s *Stats) system() []statsapi.ContainerStats {
	var all []statsapi.ContainerStats
	parts := s.Source.System()
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		sampled, started, err := s.part(parts[name])
		if err != nil {
			if !gone(err) {
				s.Log.Warn("cannot read the usage of a part of the system, leaving it out", "part", name, "err", err)
			}
			continue
		}
		all = append(all, statsapi.ContainerStats{
			Name: name, StartTime: metav1.NewTime(started), CPU: s.cpu("system/"+name, sampled, started),
			Memory: memoryStats(sampled), Swap: swapStats(sampled, 0),
		})
	}
	return all
}

func (s *Stats) nodeRest(ctx context.Context, n *statsapi.NodeStats, root sample) {
	var errs []error
	now := s.Now()
	if interfaces, err := usage.Network(s.Host, 1); err == nil {
		n.Network = networkStats(interfaces, now)
	} else {
		errs = append(errs, err)
	}
	var err error
	if n.Fs, err = fileSystem(s.Dir, now); err != nil {
		errs = append(errs, err)
	}
	if n.Runtime, err = runtimeStats(ctx, s.Source, now); err != nil {
		errs = append(errs, err)
	}
	if n.Rlimit, err = ProcessLimit(s.Host, now); err != nil {
		errs = append(errs, err)
	}
	if p := root.BlkioStats.PSI; p != nil {
		n.IO = &statsapi.IOStats{Time: metav1.NewTime(now), PSI: psi(p)}
	}
	if err := errors.Join(errs...); err != nil {
		s.Log.Warn("cannot read some of the node's usage, leaving it out", "err", err)
	}
}

// runtimeStats returns the file systems of the runtime. Images and writable layers on the same one have one value.
func runtimeStats(ctx context.Context, node Source, now time.Time) (*statsapi.RuntimeStats, error) {
	images, layers, err := node.Stores(ctx)
	if err != nil {
		return nil, err
	}
	all := &statsapi.RuntimeStats{}
	if all.ImageFs, err = images.fileSystem(now); err != nil {
		return nil, err
	}
	all.ContainerFs = all.ImageFs
	if apart, err := onTwoDevices(images.Dir, layers.Dir); err != nil || !apart {
		return all, err
	}
	all.ContainerFs, err = layers.fileSystem(now)
	return all, err
}

func (s *Stats) podStats(ctx context.Context, p podSample, onlyCPUAndMemory bool,
	layers map[string]Layer) statsapi.PodStats {
	one := statsapi.PodStats{
		PodRef:    statsapi.PodReference{Name: p.Name, Namespace: p.Namespace, UID: string(p.UID)},
		StartTime: metav1.NewTime(p.Started), Containers: []statsapi.ContainerStats{},
		CPU: s.cpu(string(p.UID), p.sample, p.Started), Memory: memoryStats(p.sample), Swap: swapStats(p.sample, 0),
	}
	for _, c := range p.containers {
		stats := statsapi.ContainerStats{
			Name: c.Name, StartTime: metav1.NewTime(c.Started), CPU: s.cpu(c.ID, c.sample, c.Started),
			Memory: memoryStats(c.sample), Swap: swapStats(c.sample, 0),
		}
		if p := c.BlkioStats.PSI; p != nil && !onlyCPUAndMemory {
			stats.IO = &statsapi.IOStats{Time: metav1.NewTime(c.At), PSI: psi(p)}
		}
		one.Containers = append(one.Containers, stats)
	}
	if onlyCPUAndMemory {
		return one
	}
	one.Network = networkStats(p.network, p.At)
	one.ProcessStats = &statsapi.ProcessStats{ProcessCount: new(uint64(p.work.processes))}
	if p := p.BlkioStats.PSI; p != nil {
		one.IO = &statsapi.IOStats{Time: one.CPU.Time, PSI: psi(p)}
	}
	s.podFiles(ctx, p, &one, layers)
	return one
}

// podFiles adds the sizes of the files that a pod has written: writable layers, logs and volumes.
func (s *Stats) podFiles(ctx context.Context, p podSample, one *statsapi.PodStats, layers map[string]Layer) {
	disk, err := fileSystem(s.Dir, s.Now())
	if err != nil {
		s.Log.Warn("cannot read the node's file system, leaving out the files of a pod", "err", err)
		return
	}
	var bytes, inodes uint64
	for i := range one.Containers {
		c := &one.Containers[i]
		if layer, ok := layers[p.containers[i].ID]; ok {
			c.Rootfs = used(disk, layer.Bytes, layer.Inodes)
			bytes, inodes = bytes+layer.Bytes, inodes+layer.Inodes
		}
		// Each container has a directory below the pod's log directory.
		if f, err := s.directory(ctx, filepath.Join(p.Logs, c.Name)); err == nil {
			c.Logs = f
			bytes, inodes = bytes+*f.UsedBytes, inodes+*f.InodesUsed
		}
	}
	if s.VolumePeriod >= 0 {
		for _, v := range p.Volumes {
			f, err := s.volume(ctx, v)
			if err != nil {
				if !gone(err) {
					s.Log.Warn("cannot measure a volume, leaving it out", "pod", p.Namespace+"/"+p.Name, "volume",
						v.Name, "err", err)
				}
				continue
			}
			one.VolumeStats = append(one.VolumeStats, *f)
			if v.Ephemeral {
				bytes, inodes = bytes+*f.UsedBytes, inodes+*f.InodesUsed
			}
		}
	}
	one.EphemeralStorage = used(disk, bytes, inodes)
}

// used returns a file system with the usage of one of its users.
func used(disk *statsapi.FsStats, bytes, inodes uint64) *statsapi.FsStats {
	f := *disk
	f.UsedBytes, f.InodesUsed = &bytes, &inodes
	return &f
}

// cpu returns the CPU usage of something that started at a time; zero means unknown.
func (s *Stats) cpu(key string, v sample, started time.Time) *statsapi.CPUStats {
	c := &statsapi.CPUStats{Time: metav1.NewTime(v.At), UsageCoreNanoSeconds: new(v.CpuStats.CpuUsage.TotalUsage)}
	c.UsageNanoCores = s.rates.Next(key, v.At, v.CpuStats.CpuUsage.TotalUsage, started)
	if p := v.CpuStats.PSI; p != nil {
		c.PSI = psi(p)
	}
	return c
}

// memoryStats returns the memory usage of a cgroup. What is available is known only below a limit.
func memoryStats(v sample) *statsapi.MemoryStats {
	m := &statsapi.MemoryStats{
		Time: metav1.NewTime(v.At), UsageBytes: new(v.MemoryStats.Usage.Usage), WorkingSetBytes: new(v.WorkingSet()),
		RSSBytes:   new(v.RSS()),
		PageFaults: new(v.Memory("pgfault", "pgfault")), MajorPageFaults: new(v.Memory("pgmajfault", "pgmajfault")),
	}
	if limit, ok := usage.Bounded(v.MemoryStats.Usage.Limit); ok {
		m.AvailableBytes = new(limit - min(limit, v.WorkingSet()))
	}
	if p := v.MemoryStats.PSI; p != nil {
		m.PSI = psi(p)
	}
	return m
}

// nodeMemory returns the memory usage of the machine. The root cgroup has no limit: its memory is the limit.
func (s *Stats) nodeMemory(root sample) *statsapi.MemoryStats {
	m := memoryStats(root)
	all := uint64(s.Capacity.Memory().Value())
	m.AvailableBytes = new(all - min(all, root.WorkingSet()))
	return m
}

// swapStats returns the swap usage of a cgroup. If total is 0, the limit of the cgroup is the total.
func swapStats(v sample, total uint64) *statsapi.SwapStats {
	out := &statsapi.SwapStats{Time: metav1.NewTime(v.At), SwapUsageBytes: new(v.Swap())}
	if limit, ok := v.SwapLimit(); ok && total == 0 {
		total = limit
	}
	out.SwapAvailableBytes = new(total - min(total, v.Swap()))
	return out
}
