package stats

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Resource is what /metrics/resource tells: CPU and memory of the node, its pods
// and their containers, for the resource metrics pipeline (KEP-1867). Names and
// labels are the kubelet's.
type Resource struct{ *Stats }

func container() []string { return []string{"container", "namespace", "pod"} }
func podLabels() []string { return []string{"namespace", "pod"} }

// resourceDescs are the series of Resource.
type resourceDescs struct {
	nodeCPU, nodeMemory, nodeSwap                                *prometheus.Desc
	containerCPU, containerMemory, containerSwap, containerBegan *prometheus.Desc
	containerSwapLimit                                           *prometheus.Desc
	podCPU, podMemory, podSwap                                   *prometheus.Desc
	scrapeError, resourceScrapeError                             *prometheus.Desc
}

func newResourceDescs() resourceDescs {
	d := func(name, help string, labels []string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return resourceDescs{
		nodeCPU:             d("node_cpu_usage_seconds_total", "Cumulative CPU time that the node has used, in core seconds", nil),
		nodeMemory:          d("node_memory_working_set_bytes", "Working set of the node, in bytes", nil),
		nodeSwap:            d("node_swap_usage_bytes", "Swap that is used on the node, in bytes", nil),
		containerCPU:        d("container_cpu_usage_seconds_total", "Cumulative CPU time that the container has used, in core seconds", container()),
		containerMemory:     d("container_memory_working_set_bytes", "Working set of the container, in bytes", container()),
		containerSwap:       d("container_swap_usage_bytes", "Swap that the container uses, in bytes", container()),
		containerSwapLimit:  d("container_swap_limit_bytes", "Swap that the container may use, in bytes", container()),
		containerBegan:      d("container_start_time_seconds", "Start of the container, in seconds since the epoch", container()),
		podCPU:              d("pod_cpu_usage_seconds_total", "Cumulative CPU time that the pod has used, in core seconds", podLabels()),
		podMemory:           d("pod_memory_working_set_bytes", "Working set of the pod, in bytes", podLabels()),
		podSwap:             d("pod_swap_usage_bytes", "Swap that the pod uses, in bytes", podLabels()),
		scrapeError:         d("scrape_error", "1 if something could not be read, 0 otherwise", nil),
		resourceScrapeError: d("resource_scrape_error", "1 if something could not be read, 0 otherwise", nil),
	}
}

// Describe implements prometheus.Collector. What there is depends on the pods, so
// nothing is promised.
func (Resource) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (r Resource) Collect(ch chan<- prometheus.Metric) {
	d := newResourceDescs()
	failed := 0.0
	root, err := r.root()
	if err == nil {
		counter(ch, d.nodeCPU, root.at, seconds(root.CpuStats.CpuUsage.TotalUsage))
		gauge(ch, d.nodeMemory, root.at, float64(root.workingSet()))
		gauge(ch, d.nodeSwap, root.at, float64(root.swap()))
	} else {
		r.Log.Warn("read what the node uses", "err", err)
		failed = 1
	}
	pods, err := r.scan()
	if err != nil {
		r.Log.Warn("read what pods use", "err", err)
		failed = 1
	}
	for _, p := range pods {
		counter(ch, d.podCPU, p.at, seconds(p.CpuStats.CpuUsage.TotalUsage), p.Namespace, p.Name)
		gauge(ch, d.podMemory, p.at, float64(p.workingSet()), p.Namespace, p.Name)
		gauge(ch, d.podSwap, p.at, float64(p.swap()), p.Namespace, p.Name)
		for _, c := range p.containers {
			counter(ch, d.containerCPU, c.at, seconds(c.CpuStats.CpuUsage.TotalUsage), c.Name, p.Namespace, p.Name)
			gauge(ch, d.containerMemory, c.at, float64(c.workingSet()), c.Name, p.Namespace, p.Name)
			gauge(ch, d.containerSwap, c.at, float64(c.swap()), c.Name, p.Namespace, p.Name)
			if limit, ok := c.swapLimit(); ok {
				gauge(ch, d.containerSwapLimit, c.at, float64(limit), c.Name, p.Namespace, p.Name)
			}
			gauge(ch, d.containerBegan, c.at, float64(c.Started.UnixNano())/1e9, c.Name, p.Namespace, p.Name)
		}
	}
	ch <- prometheus.MustNewConstMetric(d.scrapeError, prometheus.GaugeValue, failed)
	ch <- prometheus.MustNewConstMetric(d.resourceScrapeError, prometheus.GaugeValue, failed)
}

// swapLimit is what a cgroup may swap out, as far as it is bounded.
func (s sample) swapLimit() (uint64, bool) {
	all, ok := bounded(s.MemoryStats.SwapUsage.Limit)
	memory, both := bounded(s.MemoryStats.Usage.Limit)
	if !ok || !both {
		return 0, false
	}
	return all - min(all, memory), true
}

func seconds(ns uint64) float64 { return float64(ns) / 1e9 }

func counter(ch chan<- prometheus.Metric, d *prometheus.Desc, at time.Time, v float64, labels ...string) {
	ch <- prometheus.NewMetricWithTimestamp(at, prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...))
}

func gauge(ch chan<- prometheus.Metric, d *prometheus.Desc, at time.Time, v float64, labels ...string) {
	ch <- prometheus.NewMetricWithTimestamp(at, prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...))
}
