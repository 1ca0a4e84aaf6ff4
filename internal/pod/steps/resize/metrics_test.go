package resize

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// One resize is deferred, retried, accepted and completed. Another one is infeasible.
func TestMetrics(t *testing.T) {
	r := start(t, &node{}, t.TempDir())
	reg := prometheus.NewPedanticRegistry()
	if err := r.Register(reg); err != nil {
		t.Fatal(err)
	}
	r.admit(newPod(small))
	for range 2 { // a retry is not counted again
		r.allocate(newPod(large), "", "others are in the way")
	}
	tells := func(when, want string) {
		t.Helper()
		names := []string{"kubelet_container_requested_resizes_total", "kubelet_pod_pending_resizes",
			"kubelet_pod_in_progress_resizes",
			"kubelet_pod_infeasible_resizes_total", "kubelet_pod_deferred_accepted_resizes_total"}
		var plain strings.Builder
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if h := f.GetHelp(); h != "" && strings.Contains(want, f.GetName()) {
				plain.WriteString("# HELP " + f.GetName() + " " + h + "\n# TYPE " + f.GetName() + " " +
					strings.ToLower(f.GetType().String()) + "\n")
			}
			for line := range strings.Lines(want) {
				if strings.HasPrefix(line, f.GetName()) {
					plain.WriteString(line)
				}
			}
		}
		if err := testutil.GatherAndCompare(reg, strings.NewReader(plain.String()), names...); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	tells("deferred",
		`kubelet_container_requested_resizes_total{operation="increase",requirement="limits",resource="memory"} 1
kubelet_pod_in_progress_resizes 0
kubelet_pod_pending_resizes{reason="deferred"} 1
`)
	p := r.allocate(newPod(large), "", "")
	tells("accepted",
		`kubelet_container_requested_resizes_total{operation="increase",requirement="limits",resource="memory"} 1
kubelet_pod_deferred_accepted_resizes_total{retry_trigger="periodic_retry"} 1
kubelet_pod_in_progress_resizes 1
`)
	r.pass(p, "a")
	r.pass(p, "a")
	if n, err := testutil.GatherAndCount(reg, "kubelet_pod_resize_duration_milliseconds"); n != 1 || err != nil {
		t.Errorf("%d series of durations, %v", n, err)
	}
	r.node.fixed = "its CPUs are exclusive"
	r.allocate(newPod(needs("2", "1Gi", "2Gi")), "", "")
	tells("infeasible",
		`kubelet_container_requested_resizes_total{operation="increase",requirement="limits",resource="memory"} 1
kubelet_container_requested_resizes_total{operation="increase",requirement="requests",resource="cpu"} 1
kubelet_pod_deferred_accepted_resizes_total{retry_trigger="periodic_retry"} 1
kubelet_pod_in_progress_resizes 0
kubelet_pod_infeasible_resizes_total{reason_detail="guaranteed_pod_cpu_manager_static_policy"} 1
kubelet_pod_pending_resizes{reason="infeasible"} 1
`)
}
