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

// metrics are the kubelet's, of what pods are given for themselves. What is held is
// read from the ledger when somebody scrapes.
type metrics struct {
	cpus, cpuErrors, memory, memoryErrors prometheus.Counter
	admissions, admissionErrors           prometheus.Counter
	took                                  prometheus.Histogram
	aligned, unaligned                    *prometheus.CounterVec
}

// Labels of what is aligned to what.
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
			v.WithLabelValues(l[:]...) // 0 is told too
		}
		return v
	}
	return metrics{
		cpus: counter("cpu_manager_pinning_requests_total",
			"Containers that were to have CPUs for themselves."),
		cpuErrors: counter("cpu_manager_pinning_errors_total",
			"Containers that could not be given CPUs for themselves."),
		memory: counter("memory_manager_pinning_requests_total",
			"Containers that were to have memory of certain NUMA nodes."),
		memoryErrors: counter("memory_manager_pinning_errors_total",
			"Containers that could not be given memory of certain NUMA nodes."),
		admissions: counter("topology_manager_admission_requests_total",
			"Pods that were looked at for what they are to be given, and where."),
		admissionErrors: counter("topology_manager_admission_errors_total",
			"Pods that were refused because what they ask for could not be had, or not as near to each other as the "+
				"policy wants."),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "kubelet_topology_manager_admission_duration_ms",
			Help:    "Duration in milliseconds of deciding what a pod is given.",
			Buckets: prometheus.ExponentialBuckets(.05, 2, 15),
		}),
		aligned: aligned("count", "What was given as near to each other as was asked, by scope and boundary."),
		unaligned: aligned("failure_count",
			"What could not be given as near to each other as was asked, by scope and boundary."),
	}
}

// Register has what pods are given told of. Call it once.
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

// strict policies refuse what cannot be aligned: what they give is.
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

// booked counts what a pod was given that held nothing.
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

// refused counts a pod that was rejected for a reason of admission: others than
// those of what it is given are no concern of this. The words are the only trace of
// which of CPUs, memory and devices were lacking.
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

// Refused counts a pod that admission has rejected.
func (s *Allocations) Refused(why, message string) { s.metrics.refused(s.opts.Node, why, message) }

// pools tells of the CPUs that are held, and of those that all others share. It
// implements prometheus.Collector.
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
			"CPUs that nobody has for itself, in thousandths; 0 without the static policy."),
		exclusive: d("exclusive_cpu_allocation_count", "CPUs that containers have for themselves."),
		near:      d("allocation_per_numa", "CPUs that containers have for themselves, by NUMA node.", numaNode),
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
