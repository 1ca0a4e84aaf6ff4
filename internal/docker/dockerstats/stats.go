package dockerstats

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strconv"
	"time"

	"github.com/opencontainers/cgroups"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/cgroupfile"
	"github.com/berth-run/berth/internal/base/rate"
	"github.com/berth-run/berth/internal/base/usage"
)

// Container is a container to report.
type Container struct {
	Attributes *runtimeapi.ContainerAttributes
	// Image is the name of its image.
	Image string
	// PID is the ID of its first process on this machine, 0 if it does not run.
	PID int
	// Started is when it was started.
	Started time.Time
	// UpperDir is the directory of its writable layer. Empty: Stats finds it in the mounts of the first process.
	UpperDir string
}

// Sandbox is a pod sandbox to report.
type Sandbox struct {
	Attributes *runtimeapi.PodSandboxAttributes
	// PID is the ID of the first process of its pause container, 0 if it does not run.
	PID     int
	Started time.Time
	// HostNetwork: it has no network of its own.
	HostNetwork bool
	// OwnCgroup: the parent cgroup of its containers is the pod's alone. Otherwise the usage of the pod is the sum of
	// its containers.
	OwnCgroup  bool
	Containers []Container
}

// Options of Stats.
type Options struct {
	// Filesystem is the mount point or directory that names the file system of writable layers, as in ImageFsInfo.
	Filesystem string
	// Proc is where proc is mounted, and Cgroups where the cgroup file systems are.
	Proc, Cgroups string
	Now           func() time.Time
	Log           *slog.Logger
}

// Stats reports usage.
type Stats struct {
	opts    Options
	rates   *rate.Rates
	layers  *layers
	readers readers
}

// New makes Stats. It does no I/O.
func New(o Options) *Stats {
	return &Stats{opts: o, rates: rate.New(), layers: newLayers(o.Now, o.Log)}
}

// Run measures writable layers until ctx ends. Then it closes what requests have opened.
func (s *Stats) Run(ctx context.Context) error {
	defer s.readers.close()
	return s.layers.run(ctx)
}

// forgetAfter is how long Stats keeps the values of a container that no request names.
const forgetAfter = time.Hour

// Container reports a container. Without a running process it has no CPU and memory. The error is fs.ErrNotExist if the
// container ends meanwhile.
func (s *Stats) Container(c Container) (*runtimeapi.ContainerStats, error) {
	stats, _, err := s.container(c, brief)
	return stats, err
}

// container reports a container. The sample has no Stats if it does not run.
func (s *Stats) container(c Container, what cgroups.Controller) (*runtimeapi.ContainerStats, usage.Sample, error) {
	id, upper := c.Attributes.GetId(), c.UpperDir
	if upper == "" && c.PID != 0 {
		upper = UpperDir(s.opts.Proc, c.PID)
	}
	stats := &runtimeapi.ContainerStats{Attributes: c.Attributes, WritableLayer: s.layer(id, upper)}
	if c.PID == 0 {
		return stats, usage.Sample{}, nil
	}
	sample, err := s.read(id, c.PID, what)
	if err != nil {
		return nil, sample, err
	}
	stats.Cpu = s.cpu(id, sample, c.Started)
	stats.Memory, stats.Swap, stats.Io = memory(sample), swap(sample), io(sample)
	return stats, sample, nil
}

// read reads the cgroup of a container.
func (s *Stats) read(id string, pid int, what cgroups.Controller) (usage.Sample, error) {
	sample, err := s.sample(id, what, func() (cgroupfile.Group, error) { return s.groupOf(pid, id) })
	if err != nil {
		return sample, fmt.Errorf("read usage of container %s: %w", id, err)
	}
	return sample, nil
}

// sample reads a cgroup. It keeps the cgroups open that are read in brief.
func (s *Stats) sample(key string, what cgroups.Controller, find func() (cgroupfile.Group, error)) (usage.Sample,
	error) {
	now := s.opts.Now()
	first := func() (cgroupfile.Group, error) {
		s.rates.Keep(now.Add(-forgetAfter)) // there are more rates only after a first request
		return find()
	}
	if what == brief {
		return s.readers.read(key, now, first)
	}
	g, err := first()
	if err != nil {
		return usage.Sample{}, err
	}
	return usage.Read(g, what, now)
}

// Sandbox reports a pod sandbox with its containers. It leaves out containers that end meanwhile.
func (s *Stats) Sandbox(p Sandbox) (*runtimeapi.PodSandboxStats, error) {
	linux := &runtimeapi.LinuxPodSandboxStats{}
	stats := &runtimeapi.PodSandboxStats{Attributes: p.Attributes, Linux: linux}
	sum := usage.Sample{At: s.opts.Now(), Stats: cgroups.NewStats()}
	for _, c := range p.Containers {
		one, sample, err := s.container(c, brief)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		linux.Containers = append(linux.Containers, one)
		if sample.Stats != nil {
			sum = add(sum, sample)
		}
	}
	if p.PID == 0 {
		return stats, nil
	}
	own, err := s.pod(p, sum, brief)
	if errors.Is(err, fs.ErrNotExist) {
		return stats, nil
	}
	if err != nil {
		return nil, err
	}
	at := own.At.UnixNano()
	linux.Cpu = s.cpu(podKey+p.Attributes.GetId(), own, p.Started)
	linux.Memory, linux.Io = memory(own), io(own)
	linux.Process = &runtimeapi.ProcessUsage{Timestamp: at, ProcessCount: value(own.PidsStats.Current)}
	network, err := s.network(p)
	if err != nil {
		return nil, err
	}
	linux.Network = networkUsage(network, own.At)
	return stats, nil
}

// pod reads the usage of a pod. With a cgroup of its own, this is the cgroup above its pause container's. Otherwise it
// is the sum of the pause container and others.
func (s *Stats) pod(p Sandbox, others usage.Sample, what cgroups.Controller) (usage.Sample, error) {
	id := p.Attributes.GetId()
	if !p.OwnCgroup {
		pause, err := s.read(id, p.PID, what)
		if err != nil {
			return pause, err
		}
		return add(others, pause), nil
	}
	sample, err := s.sample(podKey+id, what, func() (cgroupfile.Group, error) {
		g, err := s.groupOf(p.PID, id)
		above := cgroupfile.Group{Unified: g.Unified, Dirs: map[string]string{}}
		for controller, dir := range g.Dirs {
			above.Dirs[controller] = filepath.Dir(dir)
		}
		return above, err
	})
	if err != nil {
		return sample, fmt.Errorf("read usage of pod sandbox %s: %w", id, err)
	}
	return sample, nil
}

// podKey begins the keys of pods, so that they differ from the keys of their pause containers.
const podKey = "pod/"

// network reads the counters of a pod's network. A pod in the network of the machine has none.
func (s *Stats) network(p Sandbox) ([]usage.Traffic, error) {
	if p.HostNetwork {
		return nil, nil
	}
	all, err := usage.Network(filepath.Dir(s.opts.Proc), p.PID)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read network usage of pod sandbox %s: %w", p.Attributes.GetId(), err)
	}
	return all, nil
}

// groupOf returns the cgroup of a container by its first process. The error is fs.ErrNotExist if the process no longer
// belongs to the container. A process that is ending is in the root cgroup.
func (s *Stats) groupOf(pid int, container string) (cgroupfile.Group, error) {
	at, err := cgroups.ParseCgroupFile(filepath.Join(s.opts.Proc, strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return cgroupfile.Group{}, err
	}
	return group(s.opts.Cgroups, at, container)
}

func (s *Stats) cpu(key string, v usage.Sample, started time.Time) *runtimeapi.CpuUsage {
	used := v.CpuStats.CpuUsage.TotalUsage
	c := &runtimeapi.CpuUsage{Timestamp: v.At.UnixNano(), UsageCoreNanoSeconds: value(used), Psi: psi(v.CpuStats.PSI)}
	if cores := s.rates.Next(key, v.At, used, started); cores != nil {
		c.UsageNanoCores = value(*cores)
	}
	return c
}

// layer returns the last size of a writable layer, and queues a measurement if one is due.
func (s *Stats) layer(id, upper string) *runtimeapi.FilesystemUsage {
	if upper == "" {
		return nil
	}
	size, at, ok := s.layers.of(id, upper)
	if !ok {
		return nil
	}
	return &runtimeapi.FilesystemUsage{
		Timestamp: at.UnixNano(), FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: s.opts.Filesystem},
		UsedBytes: value(uint64(size.Bytes)), InodesUsed: value(uint64(size.Inodes)),
	}
}
