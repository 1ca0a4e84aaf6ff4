package allocation

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/node/resource"
	"github.com/berth-run/berth/internal/node/resource/cpu"
	"github.com/berth-run/berth/internal/node/resource/topology"
)

// metrics have the kubelet's names. They count allotted resources. The resources held now are read from the ledger at
// each scrape.
type metrics struct {
	cpus, cpuErrors, memory, memoryErrors prometheus.Counter
	admissions, admissionErrors           prometheus.Counter
	took                                  prometheus.Histogram
	aligned, unaligned                    *prometheus.CounterVec
}

// Values of the labels "scope" and "boundary".
const (
	wholePod     = "pod"
	oneContainer = "container"
	physicalCPU  = "physical_cpu"
	numaNode     = "numa_node"
)

func newMetrics() metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "kubelet_" + name, Help: help})
	}
	aligned := func(name, help string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_container_aligned_compute_resources_" +
			name, Help: help}, []string{"scope", "boundary"})
		for _, l := range [][2]string{{wholePod, numaNode}, {oneContainer, numaNode}, {oneContainer, physicalCPU}} {
			v.WithLabelValues(l[:]...) // creates the series with the value 0
		}
		return v
	}
	return metrics{
		cpus: counter("cpu_manager_pinning_requests_total",
			"Number of containers that requested exclusive CPUs."),
		cpuErrors: counter("cpu_manager_pinning_errors_total",
			"Number of containers for which exclusive CPUs could not be allocated."),
		memory: counter("memory_manager_pinning_requests_total",
			"Number of containers that requested memory of specific NUMA nodes."),
		memoryErrors: counter("memory_manager_pinning_errors_total",
			"Number of containers for which memory of specific NUMA nodes could not be allocated."),
		admissions: counter("topology_manager_admission_requests_total",
			"Number of pods for which an allocation was computed at admission."),
		admissionErrors: counter("topology_manager_admission_errors_total",
			"Number of pods refused because their resources could not be allocated, or not aligned as the "+
				"policy requires."),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "kubelet_topology_manager_admission_duration_ms",
			Help:    "Duration in milliseconds of computing the allocation of a pod.",
			Buckets: prometheus.ExponentialBuckets(.05, 2, 15),
		}),
		aligned: aligned("count", "Number of allocations aligned as the policy requires, by scope and boundary."),
		unaligned: aligned("failure_count",
			"Number of allocations that could not be aligned as the policy requires, by scope and boundary."),
	}
}

// Register registers the metrics of allocations. Call it once.
func (s *Allocations) Register(reg prometheus.Registerer) error {
	m := s.metrics
	var errs []error
	for _, c := range []prometheus.Collector{
		m.cpus, m.cpuErrors, m.memory, m.memoryErrors, m.admissions, m.admissionErrors, m.took, m.aligned, m.unaligned,
		newPools(s),
	} {
		errs = append(errs, reg.Register(c))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("register metrics of allocations: %w", err)
	}
	return nil
}

// strict reports whether the policy refuses requests that cannot be aligned, so that every allocation is aligned.
func strict(n resource.Node) bool {
	p := n.Policy.Topology.Policy
	return p == topology.Restricted || p == topology.SingleNUMANode
}

func scope(n resource.Node) string {
	if n.Policy.Topology.Scope == topology.ScopePod {
		return wholePod
	}
	return oneContainer
}

// booked counts the first allocation of a pod.
func (m metrics) booked(n resource.Node, p *corev1.Pod, a resource.Allocation, took time.Duration) {
	m.admissions.Inc()
	m.took.Observe(float64(took) / float64(time.Millisecond))
	for _, g := range a.Containers {
		if g.CPUs.Size() > 0 {
			m.cpus.Inc()
			if n.Policy.CPU.FullPCPUsOnly {
				m.aligned.WithLabelValues(oneContainer, physicalCPU).Inc()
			}
		}
		if len(g.Memory) > 0 {
			m.memory.Inc()
		}
	}
	switch {
	case !strict(n):
	case scope(n) == wholePod:
		m.aligned.WithLabelValues(wholePod, numaNode).Inc()
	default:
		for _, c := range pod.Containers(p) {
			if c.Kind != pod.Ephemeral {
				m.aligned.WithLabelValues(oneContainer, numaNode).Inc()
			}
		}
	}
}

// refused counts a pod that admission rejected for lack of exclusive resources. It ignores other reasons. Only the
// message shows whether CPUs, memory or devices were missing.
func (m metrics) refused(n resource.Node, why, message string) {
	switch why {
	case resource.TopologyAffinityError, cpu.SMTAlignmentError, cpu.UnexpectedAdmissionError,
		cpu.EmptyPodSharedPoolError:
	default:
		return
	}
	m.admissions.Inc()
	if n.Policy.Topology.Policy != "" && n.Policy.Topology.Policy != topology.None {
		m.admissionErrors.Inc()
	}
	switch {
	case why == resource.TopologyAffinityError:
		if strict(n) {
			m.unaligned.WithLabelValues(scope(n), numaNode).Inc()
		}
	case strings.Contains(message, "[memorymanager]"):
		m.memory.Inc()
		m.memoryErrors.Inc()
	case why == cpu.SMTAlignmentError, strings.Contains(message, "cpus"):
		m.cpus.Inc()
		m.cpuErrors.Inc()
		if n.Policy.CPU.FullPCPUsOnly {
			m.unaligned.WithLabelValues(oneContainer, physicalCPU).Inc()
		}
	}
}

// Refused counts a pod that admission rejected.
func (s *Allocations) Refused(why, message string) { s.metrics.refused(s.opts.Node, why, message) }

// pools implements prometheus.Collector for the exclusive CPUs and the shared pool.
type pools struct {
	of                      *Allocations
	shared, exclusive, near *prometheus.Desc
}

func newPools(s *Allocations) pools {
	d := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("kubelet_cpu_manager_"+name, help, labels, nil)
	}
	return pools{
		of: s,
		shared: d("shared_pool_size_millicores",
			"Size of the shared CPU pool in thousandths of a CPU; 0 without the static policy."),
		exclusive: d("exclusive_cpu_allocation_count", "Number of CPUs allocated exclusively to containers."),
		near: d("allocation_per_numa", "Number of CPUs allocated exclusively to containers, by NUMA node.",
			numaNode),
	}
}

// Describe implements prometheus.Collector.
func (p pools) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{p.shared, p.exclusive, p.near} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (p pools) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, n int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	node := p.of.opts.Node
	if !node.Policy.CPUs {
		gauge(p.shared, 0)
		gauge(p.exclusive, 0)
		return
	}
	held := p.of.All().CPUs()
	gauge(p.shared, 1000*p.of.CPUs().Difference(held).Size())
	gauge(p.exclusive, held.Size())
	near := map[int]int{}
	for _, c := range node.Machine.CPUs {
		if held.Contains(c.ID) {
			near[c.Node]++
		}
	}
	for id, n := range near {
		gauge(p.near, n, strconv.Itoa(id))
	}
}
