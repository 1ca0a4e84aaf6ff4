package dockerstats

import (
	"errors"
	"io/fs"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/usage"
)

// metric is a series of a pod or a container, with cAdvisor's name.
type metric struct {
	name, help string
	kind       runtimeapi.MetricType
	value      func(usage.Sample) uint64
}

const (
	counter = runtimeapi.MetricType_COUNTER
	gauge   = runtimeapi.MetricType_GAUGE
	ns      = 1e9 // nanoseconds in a second: values of the CRI are whole numbers
)

// metrics lists the series of cgroups.
func metrics() []metric {
	memory := func(v1, v2 string) func(usage.Sample) uint64 {
		return func(s usage.Sample) uint64 { return s.Memory(v1, v2) }
	}
	return []metric{
		{"container_cpu_usage_seconds_total", "Cumulative CPU time in seconds", counter,
			func(s usage.Sample) uint64 { return s.CpuStats.CpuUsage.TotalUsage / ns }},
		{"container_cpu_user_seconds_total", "Cumulative CPU time in user mode in seconds", counter,
			func(s usage.Sample) uint64 { return s.CpuStats.CpuUsage.UsageInUsermode / ns }},
		{"container_cpu_system_seconds_total", "Cumulative CPU time in the kernel in seconds", counter,
			func(s usage.Sample) uint64 { return s.CpuStats.CpuUsage.UsageInKernelmode / ns }},
		{"container_cpu_cfs_periods_total", "Periods of the CPU quota that have passed", counter,
			func(s usage.Sample) uint64 { return s.CpuStats.ThrottlingData.Periods }},
		{"container_cpu_cfs_throttled_periods_total", "Periods in which the quota was used up", counter,
			func(s usage.Sample) uint64 { return s.CpuStats.ThrottlingData.ThrottledPeriods }},
		{"container_cpu_cfs_throttled_seconds_total", "Time without CPU because of the quota in seconds", counter,
			func(s usage.Sample) uint64 { return s.CpuStats.ThrottlingData.ThrottledTime / ns }},
		{"container_memory_usage_bytes", "Memory in use in bytes, caches included", gauge,
			func(s usage.Sample) uint64 { return s.MemoryStats.Usage.Usage }},
		{"container_memory_working_set_bytes", "Memory in use in bytes without inactive file pages", gauge,
			usage.Sample.WorkingSet},
		{"container_memory_rss", "Anonymous memory in bytes", gauge, usage.Sample.RSS},
		{"container_memory_swap", "Swap in use in bytes", gauge, usage.Sample.Swap},
		{"container_memory_cache", "Page cache in bytes", gauge, memory("total_cache", "file")},
		{"container_memory_mapped_file", "Mapped files in bytes", gauge, memory("total_mapped_file", "file_mapped")},
		{"container_memory_total_active_file_bytes", "Active file pages in bytes", gauge,
			memory("total_active_file", "active_file")},
		{"container_memory_total_inactive_file_bytes", "Inactive file pages in bytes", gauge,
			memory("total_inactive_file", "inactive_file")},
		{"container_memory_failcnt", "How often the memory limit was hit", counter,
			func(s usage.Sample) uint64 { return s.MemoryStats.Usage.Failcnt }},
		{"container_oom_events_total", "Processes that were killed for want of memory", counter,
			func(s usage.Sample) uint64 { return s.OOMKills }},
		{"container_threads", "Threads", gauge, func(s usage.Sample) uint64 { return s.PidsStats.Current }},
		{"container_threads_max", "Threads that there may be, 0: no bound", gauge,
			func(s usage.Sample) uint64 { return s.PidsStats.Limit }},
	}
}

// transfer is a series of a network interface.
type transfer struct {
	name, help string
	value      func(usage.Traffic) uint64
}

func transfers() []transfer {
	return []transfer{
		{"container_network_receive_bytes_total", "Bytes received",
			func(t usage.Traffic) uint64 { return t.RxBytes }},
		{"container_network_receive_packets_total", "Packets received",
			func(t usage.Traffic) uint64 { return t.RxPackets }},
		{"container_network_receive_errors_total", "Errors while receiving",
			func(t usage.Traffic) uint64 { return t.RxErrors }},
		{"container_network_receive_packets_dropped_total", "Packets dropped while receiving",
			func(t usage.Traffic) uint64 { return t.RxDrops }},
		{"container_network_transmit_bytes_total", "Bytes sent",
			func(t usage.Traffic) uint64 { return t.TxBytes }},
		{"container_network_transmit_packets_total", "Packets sent",
			func(t usage.Traffic) uint64 { return t.TxPackets }},
		{"container_network_transmit_errors_total", "Errors while sending",
			func(t usage.Traffic) uint64 { return t.TxErrors }},
		{"container_network_transmit_packets_dropped_total", "Packets dropped while sending",
			func(t usage.Traffic) uint64 { return t.TxDrops }},
	}
}

// labels returns the labels of all series, in the order of their values. Series of an interface have its name at the
// end.
func labels(more ...string) []string {
	return append([]string{"pod", "namespace", "container", "id", "image"}, more...)
}

// Descriptors lists the series that Metrics reports.
func Descriptors() (all []*runtimeapi.MetricDescriptor) {
	for _, m := range metrics() {
		all = append(all, &runtimeapi.MetricDescriptor{Name: m.name, Help: m.help, LabelKeys: labels()})
	}
	for _, t := range transfers() {
		all = append(all, &runtimeapi.MetricDescriptor{Name: t.name, Help: t.help, LabelKeys: labels("interface")})
	}
	return all
}

// Metrics reports the series of a pod sandbox and of its containers. The series of the pod itself have no container and
// no image. It leaves out containers that do not run.
func (s *Stats) Metrics(p Sandbox) (*runtimeapi.PodSandboxMetrics, error) {
	id, meta := p.Attributes.GetId(), p.Attributes.GetMetadata()
	all := &runtimeapi.PodSandboxMetrics{PodSandboxId: id}
	values := func(container, id, image string, more ...string) []string {
		return append([]string{meta.GetName(), meta.GetNamespace(), container, id, image}, more...)
	}
	for _, c := range p.Containers {
		_, sample, err := s.container(c, usage.Full)
		if errors.Is(err, fs.ErrNotExist) || err == nil && sample.Stats == nil {
			continue
		}
		if err != nil {
			return nil, err
		}
		cid := c.Attributes.GetId()
		all.ContainerMetrics = append(all.ContainerMetrics, &runtimeapi.ContainerMetrics{
			ContainerId: cid, Metrics: series(sample, values(c.Attributes.GetMetadata().GetName(), cid, c.Image)),
		})
	}
	if p.PID == 0 {
		return all, nil
	}
	if p.OwnCgroup {
		sample, err := s.pod(p, usage.Sample{}, usage.Full)
		if err == nil {
			all.Metrics = series(sample, values("", id, ""))
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	network, err := s.network(p)
	if err != nil {
		return nil, err
	}
	now := s.opts.Now().UnixNano()
	for _, t := range network {
		for _, one := range transfers() {
			all.Metrics = append(all.Metrics, &runtimeapi.Metric{Name: one.name, Timestamp: now, MetricType: counter,
				LabelValues: values("", id, "", t.Name), Value: value(one.value(t))})
		}
	}
	return all, nil
}

// series returns the series of one cgroup.
func series(s usage.Sample, values []string) (all []*runtimeapi.Metric) {
	for _, m := range metrics() {
		all = append(all, &runtimeapi.Metric{Name: m.name, Timestamp: s.At.UnixNano(), MetricType: m.kind,
			LabelValues: values, Value: value(m.value(s))})
	}
	return all
}
