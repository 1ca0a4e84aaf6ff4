package allocation

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/berth-run/berth/internal/node/resource/topology"
)

// sums returns the value of each series by name and labels. For a histogram it is the count.
func sums(t *testing.T, s *Allocations) map[string]float64 {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	if err := s.Register(reg); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			name := f.GetName()
			for _, l := range m.Label {
				name += " " + l.GetName() + "=" + l.GetValue()
			}
			if v := m.GetCounter().GetValue() + m.GetGauge().GetValue() +
				float64(m.GetHistogram().GetSampleCount()); v != 0 {
				all[name] = v
			}
		}
	}
	return all
}

// Two containers of a pod get exclusive CPUs and are counted once. A second pod is refused.
func TestMetrics(t *testing.T) {
	w := newWorld(t)
	w.near = topology.Options{Policy: topology.SingleNUMANode, Scope: topology.ScopeContainer}
	s := w.start(t)
	p := w.want("a", "2")
	book(t, s, p)
	book(t, s, p)
	s.Refused("TopologyAffinityError", "Resources cannot be allocated with Topology locality")
	s.Refused("UnexpectedAdmissionError",
		"Allocate failed due to not enough cpus available to satisfy request: requested=8, available=7, which "+
			"is unexpected")
	s.Refused("UnexpectedAdmissionError", "Allocate failed due to [memorymanager] too little, which is unexpected")
	s.Refused("NodeAffinity", "another rule's")
	held := float64(s.All().CPUs().Size())
	near := map[bool]string{true: "0", false: "1"}[s.All().CPUs().Contains(1)]
	want := map[string]float64{
		"kubelet_cpu_manager_pinning_requests_total": 3, "kubelet_cpu_manager_pinning_errors_total": 1,
		"kubelet_memory_manager_pinning_requests_total": 1, "kubelet_memory_manager_pinning_errors_total": 1,
		"kubelet_topology_manager_admission_requests_total": 4, "kubelet_topology_manager_admission_errors_total": 3,
		"kubelet_topology_manager_admission_duration_ms":                                               1,
		"kubelet_container_aligned_compute_resources_count boundary=numa_node scope=container":         2,
		"kubelet_container_aligned_compute_resources_failure_count boundary=numa_node scope=container": 1,
		"kubelet_cpu_manager_exclusive_cpu_allocation_count":                                           held,
		"kubelet_cpu_manager_allocation_per_numa numa_node=" + near:                                    held,
	}
	want["kubelet_cpu_manager_shared_pool_size_millicores"] = 1000 * (31 - held)
	if d := cmp.Diff(want, sums(t, s)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
