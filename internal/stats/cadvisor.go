package stats

import (
	"context"
	"path/filepath"
	"strconv"

	"github.com/opencontainers/cgroups"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/berth-run/berth/internal/cgroupfile"
)

// Cadvisor is what /metrics/cadvisor tells: the series of cAdvisor that dashboards
// and alerts are made of, under its names and labels. Series of what cAdvisor
// measures by walking over all open files and sockets of all processes
// (container_file_descriptors, container_sockets) and of single CPUs are not
// among them.
type Cadvisor struct{ *Stats }

// Describe implements prometheus.Collector. What there is depends on the pods, so
// nothing is promised.
func (Cadvisor) Describe(chan<- *prometheus.Desc) {}

// cadvisorLabels are those of every series of a container: its cgroup, and what
// is in it. All but id are empty for what is not a pod's.
func cadvisorLabels(more ...string) []string {
	return append([]string{"container", "id", "image", "name", "namespace", "pod"}, more...)
}

// Collect implements prometheus.Collector.
func (c Cadvisor) Collect(ch chan<- prometheus.Metric) {
	e := emitter{ch: ch}
	failed := 0.0
	if root, err := c.root(); err == nil {
		e.labels = []string{"", "/", "", "", "", ""}
		e.usage(root)
	} else {
		c.Log.Warn("read what the node uses", "err", err)
		failed = 1
	}
	pods, err := c.scan()
	if err != nil {
		c.Log.Warn("read what pods use", "err", err)
		failed = 1
	}
	layers := c.layers(context.Background())
	for _, p := range pods {
		e.labels = []string{"", p.Path, "", "", p.Namespace, p.Name}
		e.usage(p.sample)
		e.spec(p.Group, p.sample)
		e.processes(p.sample, p.processes)
		for _, t := range p.network {
			e.traffic(t)
		}
		for _, one := range p.containers {
			e.labels = []string{one.Name, one.Path, one.Image, one.RuntimeName, p.Namespace, p.Name}
			e.usage(one.sample)
			e.spec(one.Group, one.sample)
			e.processes(one.sample, one.processes)
			e.gauge("container_start_time_seconds", "Start of the container, in seconds since the epoch", float64(one.Started.Unix()))
			e.gauge("container_last_seen", "When the container was last read, in seconds since the epoch", float64(one.at.Unix()))
			if l, ok := layers[one.ID]; ok {
				e.gauge("container_fs_usage_bytes", "Bytes that the container has written over its image", float64(l.Bytes), "device", "")
				e.gauge("container_fs_inodes_total", "Inodes that the container has made over its image", float64(l.Inodes), "device", "")
			}
		}
	}
	c.machine(ch)
	e.labels = nil
	ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("container_scrape_error", "1 if something could not be read, 0 otherwise", nil, nil), prometheus.GaugeValue, failed)
}

// machine tells what the node is made of.
func (c Cadvisor) machine(ch chan<- prometheus.Metric) {
	facts := func(name, help string, v float64) {
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, nil), prometheus.GaugeValue, v)
	}
	facts("machine_cpu_cores", "Logical CPUs", float64(len(c.Machine.CPUs)))
	facts("machine_cpu_physical_cores", "Cores", float64(len(c.Machine.ByCore())))
	facts("machine_cpu_sockets", "Sockets", float64(len(c.Machine.BySocket())))
	facts("machine_memory_bytes", "Memory in bytes", float64(c.Capacity.Memory().Value()))
	facts("machine_swap_bytes", "Swap in bytes", float64(c.swapTotal()))
}

// emitter sends the series of one cgroup.
type emitter struct {
	ch     chan<- prometheus.Metric
	labels []string
}

// send takes further labels as pairs.
func (e emitter) send(kind prometheus.ValueType, name, help string, v float64, pairs []string) {
	labels, values := cadvisorLabels(), e.labels
	for i := 0; i < len(pairs); i += 2 {
		labels = append(labels, pairs[i])
		values = append(values[:len(values):len(values)], pairs[i+1])
	}
	e.ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, labels, nil), kind, v, values...)
}

func (e emitter) counter(name, help string, v float64, pairs ...string) {
	e.send(prometheus.CounterValue, name, help, v, pairs)
}

func (e emitter) gauge(name, help string, v float64, pairs ...string) {
	e.send(prometheus.GaugeValue, name, help, v, pairs)
}

func (e emitter) usage(s sample) {
	cpu := s.CpuStats
	e.counter("container_cpu_usage_seconds_total", "Cumulative CPU time in seconds", seconds(cpu.CpuUsage.TotalUsage), "cpu", "total")
	e.counter("container_cpu_user_seconds_total", "Cumulative CPU time in user mode in seconds", seconds(cpu.CpuUsage.UsageInUsermode))
	e.counter("container_cpu_system_seconds_total", "Cumulative CPU time in the kernel in seconds", seconds(cpu.CpuUsage.UsageInKernelmode))
	if cpu.ThrottlingData.Periods > 0 {
		e.counter("container_cpu_cfs_periods_total", "Periods of the CPU quota that have passed", float64(cpu.ThrottlingData.Periods))
		e.counter("container_cpu_cfs_throttled_periods_total", "Periods in which the quota was used up", float64(cpu.ThrottlingData.ThrottledPeriods))
		e.counter("container_cpu_cfs_throttled_seconds_total", "Time without CPU because of the quota in seconds", seconds(cpu.ThrottlingData.ThrottledTime))
	}
	m := s.MemoryStats
	e.gauge("container_memory_usage_bytes", "Memory in use in bytes, caches included", float64(m.Usage.Usage))
	e.gauge("container_memory_working_set_bytes", "Memory in use in bytes without inactive file pages", float64(s.workingSet()))
	e.gauge("container_memory_max_usage_bytes", "Most memory that was in use in bytes", float64(m.Usage.MaxUsage))
	e.gauge("container_memory_rss", "Anonymous memory in bytes", float64(s.rss()))
	e.gauge("container_memory_cache", "Page cache in bytes", float64(s.memory("total_cache", "file")))
	e.gauge("container_memory_mapped_file", "Mapped files in bytes", float64(s.memory("total_mapped_file", "file_mapped")))
	e.gauge("container_memory_swap", "Swap in use in bytes", float64(s.swap()))
	e.gauge("container_memory_kernel_usage", "Memory of the kernel in bytes", float64(max(m.KernelUsage.Usage, s.memory("", "kernel"))))
	e.gauge("container_memory_total_active_file_bytes", "Active file pages in bytes", float64(s.memory("total_active_file", "active_file")))
	e.gauge("container_memory_total_inactive_file_bytes", "Inactive file pages in bytes", float64(s.memory("total_inactive_file", "inactive_file")))
	e.counter("container_memory_failcnt", "How often the memory limit was hit", float64(m.Usage.Failcnt))
	const failures = "Page faults"
	e.counter("container_memory_failures_total", failures, float64(s.memory("pgfault", "pgfault")), "failure_type", "pgfault", "scope", "container")
	e.counter("container_memory_failures_total", failures, float64(s.memory("pgmajfault", "pgmajfault")), "failure_type", "pgmajfault", "scope", "container")
	e.counter("container_oom_events_total", "Processes that were killed for want of memory", float64(s.oomKills))
	e.io(s.BlkioStats)
	e.pressure("cpu", cpu.PSI)
	e.pressure("memory", m.PSI)
	e.pressure("io", s.BlkioStats.PSI)
}

// io counts what went to and from block devices.
func (e emitter) io(b cgroups.BlkioStats) {
	sum := func(entries []cgroups.BlkioStatEntry, op string, to func(device string, v float64)) {
		for _, x := range entries {
			if x.Op == op {
				to(strconv.FormatUint(x.Major, 10)+":"+strconv.FormatUint(x.Minor, 10), float64(x.Value))
			}
		}
	}
	for op, name := range map[string]string{"Read": "reads", "Write": "writes"} {
		sum(b.IoServiceBytesRecursive, op, func(device string, v float64) {
			e.counter("container_fs_"+name+"_bytes_total", "Bytes of "+name+" of block devices", v, "device", device)
		})
		sum(b.IoServicedRecursive, op, func(device string, v float64) {
			e.counter("container_fs_"+name+"_total", "Number of "+name+" of block devices", v, "device", device)
		})
	}
}

// pressure tells stalls (PSI), where the kernel does.
func (e emitter) pressure(what string, p *cgroups.PSIStats) {
	if p == nil {
		return
	}
	const us = 1e-6
	e.counter("container_pressure_"+what+"_waiting_seconds_total", "Time that some tasks waited for "+what+" in seconds", float64(p.Some.Total)*us)
	e.counter("container_pressure_"+what+"_stalled_seconds_total", "Time that no task went on for want of "+what+" in seconds", float64(p.Full.Total)*us)
}

func (e emitter) processes(s sample, processes int) {
	e.gauge("container_processes", "Processes", float64(processes))
	e.gauge("container_threads", "Threads", float64(s.PidsStats.Current))
	e.gauge("container_threads_max", "Threads that there may be, 0: no bound", float64(s.PidsStats.Limit))
}

// spec tells what a cgroup is bounded by; 0 is no bound.
func (e emitter) spec(g cgroupfile.Group, s sample) {
	limit, _ := bounded(s.MemoryStats.Usage.Limit)
	e.gauge("container_spec_memory_limit_bytes", "Memory limit in bytes, 0: none", float64(limit))
	swap, _ := s.swapLimit()
	e.gauge("container_spec_memory_swap_limit_bytes", "Limit of memory and swap in bytes, 0: none", float64(limit+swap))
	b := bounds(g)
	e.gauge("container_spec_cpu_shares", "CPU shares", b.shares)
	if b.period > 0 {
		e.gauge("container_spec_cpu_period", "Period of the CPU quota in microseconds", b.period)
	}
	if b.quota > 0 {
		e.gauge("container_spec_cpu_quota", "CPU quota per period in microseconds", b.quota)
	}
}

func (e emitter) traffic(t traffic) {
	for _, c := range []struct {
		name, help string
		value      uint64
	}{
		{"receive_bytes", "Bytes received", t.rxBytes}, {"receive_packets", "Packets received", t.rxPackets},
		{"receive_errors", "Errors while receiving", t.rxErrors}, {"receive_packets_dropped", "Packets dropped while receiving", t.rxDrops},
		{"transmit_bytes", "Bytes sent", t.txBytes}, {"transmit_packets", "Packets sent", t.txPackets},
		{"transmit_errors", "Errors while sending", t.txErrors}, {"transmit_packets_dropped", "Packets dropped while sending", t.txDrops},
	} {
		e.counter("container_network_"+c.name+"_total", c.help, float64(c.value), "interface", t.name)
	}
}

// cpuBounds of a cgroup; 0 where there is none.
type cpuBounds struct{ shares, quota, period float64 }

func bounds(g cgroupfile.Group) (b cpuBounds) {
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
	b.quota, b.period = number(filepath.Join(dir, "cpu.cfs_quota_us"), 0), number(filepath.Join(dir, "cpu.cfs_period_us"), 0)
	return b
}
