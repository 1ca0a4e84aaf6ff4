package stats

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/opencontainers/cgroups"
	dto "github.com/prometheus/client_model/go"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/cgroupfile"
	"github.com/berth-run/berth/internal/base/usage"
)

// Cadvisor serves /metrics/cadvisor: the series of cAdvisor that dashboards and alerts use, with its names and labels.
// It omits the series of single CPUs.
type Cadvisor struct{ *Stats }

// Gather implements prometheus.Gatherer. It omits what it cannot read and then sets container_scrape_error to 1.
func (c Cadvisor) Gather() ([]*dto.MetricFamily, error) {
	e := emitter{families: families{}, devices: devices{host: c.Host, names: map[[2]uint64]string{}}, now: c.Now()}
	root, pods, failed := c.all(usage.Full)
	if root.Stats != nil {
		e.of(Container{}, "/", Pod{})
		e.usage(root)
		e.gauge("container_start_time_seconds", "Start of the container, in seconds since the epoch",
			unixSeconds(BootTime(c.Host)))
		c.disk(&e)
	}
	layers := c.layers(context.Background())
	for _, p := range pods {
		e.of(Container{}, p.Path, p.Pod)
		e.cgroup(p.Group, p.sample, p.Started, p.work)
		e.of(p.Sandbox, p.Sandbox.Path, p.Pod)
		if p.Sandbox.ID == "" {
			e.of(Container{}, p.Path, p.Pod)
		}
		for _, t := range p.network {
			e.traffic(t)
		}
		for _, one := range p.containers {
			e.of(one.Container, one.Path, p.Pod)
			e.cgroup(one.Group, one.sample, one.Started, one.work)
			if l, ok := layers[one.ID]; ok {
				e.gauge("container_fs_usage_bytes", "Bytes in use", float64(l.Bytes), "device", e.devices.of(c.Dir))
			}
		}
	}
	c.machine(e.families)
	e.families.add(gauge("container_scrape_error", "1 if something could not be read, 0 otherwise"), nil, failed)
	return e.families.list(), nil
}

// disk adds the series of the node's own file system.
func (c Cadvisor) disk(e *emitter) {
	f, err := fileSystem(c.Dir, c.Now())
	if err != nil {
		c.Log.Warn("cannot read the node's file system, leaving it out", "err", err)
		return
	}
	device := e.devices.of(c.Dir)
	e.gauge("container_fs_limit_bytes", "Size of the file system in bytes", float64(*f.CapacityBytes), "device", device)
	e.gauge("container_fs_usage_bytes", "Bytes in use", float64(*f.UsedBytes), "device", device)
	e.gauge("container_fs_inodes_total", "Inodes of the file system", float64(*f.Inodes), "device", device)
	e.gauge("container_fs_inodes_free", "Free inodes of the file system", float64(*f.InodesFree), "device", device)
}

// machine adds the series that describe the hardware.
func (c Cadvisor) machine(f families) {
	of := labelled("machine_id", c.Identity.MachineID, "system_uuid", c.Identity.SystemUUID, "boot_id",
		c.Identity.BootID)
	for _, fact := range []struct {
		name, help string
		value      float64
	}{
		{"machine_cpu_cores", "Logical CPUs", float64(len(c.Machine.CPUs))},
		{"machine_cpu_physical_cores", "Cores", float64(len(c.Machine.ByCore()))},
		{"machine_cpu_sockets", "Sockets", float64(len(c.Machine.BySocket()))},
		{"machine_memory_bytes", "Memory in bytes", float64(c.Capacity.Memory().Value())},
		{"machine_swap_bytes", "Swap in bytes", float64(c.swapTotal())},
	} {
		f.add(gauge(fact.name, fact.help), of, fact.value)
	}
	f.add(gauge("machine_scrape_error", "1 if something could not be read, 0 otherwise"), nil, 0)
}

// emitter adds the series of one cgroup after another.
type emitter struct {
	families families
	devices  devices
	labels   labels
	now      time.Time
}

// of sets the labels of the series that follow. For a cgroup that is not a pod's, all labels except id are empty. For
// one that is not a container's, the container labels are empty.
func (e *emitter) of(c Container, path string, p Pod) {
	e.labels = labelled("container", c.Name, "id", path, "image", c.Image, "name", c.RuntimeName, "namespace",
		p.Namespace, "pod", p.Name)
}

// counter adds a sample. pairs are further labels and values in turn.
func (e *emitter) counter(name, help string, v float64, pairs ...string) {
	e.families.add(counter(name, help), e.labels.with(pairs...), v)
}

func (e *emitter) gauge(name, help string, v float64, pairs ...string) {
	e.families.add(gauge(name, help), e.labels.with(pairs...), v)
}

// cgroup adds all series of a pod or a container.
func (e *emitter) cgroup(g cgroupfile.Group, s sample, began time.Time, w work) {
	e.spec(g, s)
	e.usage(s)
	e.gauge("container_processes", "Processes", float64(w.processes))
	e.gauge("container_file_descriptors", "Open files of the processes", float64(w.files))
	e.gauge("container_sockets", "Open sockets of the processes", float64(w.sockets))
	if w.maxFiles != 0 {
		e.gauge("container_ulimits_soft", "Soft limit of the first process, -1: no limit", w.maxFiles, "ulimit",
			"max_open_files")
	}
	e.gauge("container_threads", "Threads", float64(s.PidsStats.Current))
	e.gauge("container_threads_max", "Threads that there may be, 0: no bound", float64(s.PidsStats.Limit))
	e.gauge("container_start_time_seconds", "Start of the container, in seconds since the epoch", unixSeconds(began))
}

func (e *emitter) usage(s sample) {
	cpu := s.CpuStats
	e.counter("container_cpu_usage_seconds_total", "Cumulative CPU time in seconds", seconds(cpu.CpuUsage.TotalUsage),
		"cpu", "total")
	e.counter("container_cpu_user_seconds_total", "Cumulative CPU time in user mode in seconds",
		seconds(cpu.CpuUsage.UsageInUsermode))
	e.counter("container_cpu_system_seconds_total", "Cumulative CPU time in the kernel in seconds",
		seconds(cpu.CpuUsage.UsageInKernelmode))
	m := s.MemoryStats
	e.gauge("container_memory_usage_bytes", "Memory in use in bytes, caches included", float64(m.Usage.Usage))
	e.gauge("container_memory_working_set_bytes", "Memory in use in bytes without inactive file pages",
		float64(s.WorkingSet()))
	e.gauge("container_memory_max_usage_bytes", "Most memory that was in use in bytes", float64(m.Usage.MaxUsage))
	e.gauge("container_memory_rss", "Anonymous memory in bytes", float64(s.RSS()))
	e.gauge("container_memory_cache", "Page cache in bytes", float64(s.Memory("total_cache", "file")))
	e.gauge("container_memory_mapped_file", "Mapped files in bytes",
		float64(s.Memory("total_mapped_file", "file_mapped")))
	e.gauge("container_memory_swap", "Swap in use in bytes", float64(s.Swap()))
	e.gauge("container_memory_kernel_usage", "Memory of the kernel in bytes",
		float64(max(m.KernelUsage.Usage, s.Memory("", "kernel"))))
	e.gauge("container_memory_total_active_file_bytes", "Active file pages in bytes",
		float64(s.Memory("total_active_file", "active_file")))
	e.gauge("container_memory_total_inactive_file_bytes", "Inactive file pages in bytes",
		float64(s.Memory("total_inactive_file", "inactive_file")))
	e.counter("container_memory_failcnt", "How often the memory limit was hit", float64(m.Usage.Failcnt))
	for kind, scopes := range map[string][2]uint64{
		"pgfault":    {s.Memory("pgfault", "pgfault"), s.Memory("total_pgfault", "pgfault")},
		"pgmajfault": {s.Memory("pgmajfault", "pgmajfault"), s.Memory("total_pgmajfault", "pgmajfault")},
	} {
		const faults = "Page faults"
		e.counter("container_memory_failures_total", faults, float64(scopes[0]), "failure_type", kind, "scope",
			"container")
		e.counter("container_memory_failures_total", faults, float64(scopes[1]), "failure_type", kind, "scope",
			"hierarchy")
	}
	e.counter("container_oom_events_total", "Processes that were killed for want of memory", float64(s.OOMKills))
	for size, h := range s.HugetlbStats {
		e.gauge("container_hugetlb_usage_bytes", "Huge pages in use in bytes", float64(h.Usage), "pagesize", size)
		e.gauge("container_hugetlb_max_usage_bytes", "Most huge pages that were in use in bytes", float64(h.MaxUsage),
			"pagesize", size)
		e.counter("container_hugetlb_failcnt", "How often the limit of huge pages was hit", float64(h.Failcnt),
			"pagesize", size)
	}
	e.gauge("container_last_seen", "When the container was last read, in seconds since the epoch", unixSeconds(e.now))
	e.io(s.BlkioStats)
	e.pressure("cpu", cpu.PSI)
	e.pressure("memory", m.PSI)
	e.pressure("io", s.BlkioStats.PSI)
}

// io adds the counters of block devices.
func (e *emitter) io(b cgroups.BlkioStats) {
	names := map[string]string{"Read": "reads", "Write": "writes"}
	for _, x := range b.IoServiceBytesRecursive {
		name, ok := names[x.Op]
		if !ok {
			continue
		}
		device := e.devices.name(x.Major, x.Minor)
		e.counter("container_fs_"+name+"_bytes_total", "Bytes of "+name+" of block devices", float64(x.Value), "device",
			device)
		e.counter("container_blkio_device_usage_total", "Bytes that went to and from block devices", float64(x.Value),
			"device", device, "major", strconv.FormatUint(x.Major, 10), "minor", strconv.FormatUint(x.Minor, 10),
			"operation", x.Op)
	}
	for _, x := range b.IoServicedRecursive {
		if name, ok := names[x.Op]; ok {
			e.counter("container_fs_"+name+"_total", "Number of "+name+" of block devices", float64(x.Value), "device",
				e.devices.name(x.Major, x.Minor))
		}
	}
}

// pressure adds pressure stall information (PSI) if the kernel has it.
func (e *emitter) pressure(what string, p *cgroups.PSIStats) {
	if p == nil {
		return
	}
	const us = 1e-6
	e.counter("container_pressure_"+what+"_waiting_seconds_total",
		"Time that some tasks waited for "+what+" in seconds", float64(p.Some.Total)*us)
	e.counter("container_pressure_"+what+"_stalled_seconds_total",
		"Time that no task went on for want of "+what+" in seconds", float64(p.Full.Total)*us)
}

// spec adds the limits of a cgroup; 0 means no limit. Throttling is reported only for cgroups with a quota.
func (e *emitter) spec(g cgroupfile.Group, s sample) {
	limit, ok := usage.Bounded(s.MemoryStats.Usage.Limit)
	if !ok {
		limit = 0
	}
	swap, _ := s.SwapLimit()
	e.gauge("container_spec_memory_limit_bytes", "Memory limit in bytes, 0: none", float64(limit))
	e.gauge("container_spec_memory_swap_limit_bytes", "Limit of memory and swap in bytes, 0: none", float64(limit+swap))
	b := boundsOf(g)
	e.gauge("container_spec_memory_reservation_limit_bytes", "Memory in bytes that is kept longest, 0: none",
		b.reservation)
	e.gauge("container_spec_cpu_shares", "CPU shares", b.shares)
	if b.period > 0 {
		e.gauge("container_spec_cpu_period", "Period of the CPU quota in microseconds", b.period)
	}
	if b.quota == 0 {
		return
	}
	e.gauge("container_spec_cpu_quota", "CPU quota per period in microseconds", b.quota)
	t, burst := s.CpuStats.ThrottlingData, s.CpuStats.BurstData
	e.counter("container_cpu_cfs_periods_total", "Periods of the CPU quota that have passed", float64(t.Periods))
	e.counter("container_cpu_cfs_throttled_periods_total", "Periods in which the quota was used up",
		float64(t.ThrottledPeriods))
	e.counter("container_cpu_cfs_throttled_seconds_total", "Time without CPU because of the quota in seconds",
		seconds(t.ThrottledTime))
	e.counter("container_cpu_cfs_burst_periods_total", "Periods in which more than the quota was used",
		float64(burst.BurstsPeriods))
	e.counter("container_cpu_cfs_burst_seconds_total", "CPU time above the quota in seconds", seconds(burst.BurstTime))
}

func (e *emitter) traffic(t usage.Traffic) {
	for _, c := range []struct {
		name, help string
		value      uint64
	}{
		{"receive_bytes", "Bytes received", t.RxBytes}, {"receive_packets", "Packets received", t.RxPackets},
		{"receive_errors", "Errors while receiving", t.RxErrors},
		{"receive_packets_dropped", "Packets dropped while receiving", t.RxDrops},
		{"transmit_bytes", "Bytes sent", t.TxBytes}, {"transmit_packets", "Packets sent", t.TxPackets},
		{"transmit_errors", "Errors while sending", t.TxErrors},
		{"transmit_packets_dropped", "Packets dropped while sending", t.TxDrops},
	} {
		e.counter("container_network_"+c.name+"_total", c.help, float64(c.value), "interface", t.Name)
	}
}

// bounds are limits of a cgroup. 0 means none.
type bounds struct{ shares, quota, period, reservation float64 }

func boundsOf(g cgroupfile.Group) (b bounds) {
	if dir, ok := g.Dir("memory"); ok {
		file := "memory.soft_limit_in_bytes"
		if g.Unified {
			file = "memory.low"
		}
		if n := number(filepath.Join(dir, file), 0); n < 1<<62 {
			b.reservation = n
		}
	}
	dir, ok := g.Dir("cpu")
	if !ok {
		return b
	}
	if g.Unified {
		b.shares = sharesOf(number(filepath.Join(dir, "cpu.weight"), 0))
		b.quota, b.period = number(filepath.Join(dir, "cpu.max"), 0), number(filepath.Join(dir, "cpu.max"), 1)
		return b
	}
	b.shares = number(filepath.Join(dir, "cpu.shares"), 0)
	b.quota, b.period = number(filepath.Join(dir, "cpu.cfs_quota_us"), 0),
		number(filepath.Join(dir, "cpu.cfs_period_us"), 0)
	return b
}

// devices maps the device numbers that cgroups use to names such as /dev/sda. A device that sysfs does not know is
// named by its numbers.
type devices struct {
	host  string
	names map[[2]uint64]string
}

func (d devices) name(major, minor uint64) string {
	key := [2]uint64{major, minor}
	if name, known := d.names[key]; known {
		return name
	}
	name := strconv.FormatUint(major, 10) + ":" + strconv.FormatUint(minor, 10)
	if to, err := os.Readlink(filepath.Join(d.host, "sys/dev/block", name)); err == nil {
		name = "/dev/" + filepath.Base(to)
	}
	d.names[key] = name
	return name
}

// of returns the device of the file system that holds a path.
func (d devices) of(path string) string {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return ""
	}
	return d.name(uint64(unix.Major(st.Dev)), uint64(unix.Minor(st.Dev)))
}

func unixSeconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.Unix())
}
