package resize

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
)

// metrics have the names of the kubelet's metrics of resizes.
type metrics struct {
	requested, infeasible, accepted *prometheus.CounterVec
	took                            *prometheus.HistogramVec
}

func newMetrics() metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_" + name, Help: help}, labels)
	}
	return metrics{
		requested: counter("container_requested_resizes_total",
			"Number of requested resizes: each of CPU and memory, requests and limits of a container "+
				"counts. The operation is add, remove, increase or decrease.",
			"resource", "requirement", "operation"),
		infeasible: counter("pod_infeasible_resizes_total", "Number of infeasible resizes, by reason.",
			"reason_detail"),
		accepted: counter("pod_deferred_accepted_resizes_total",
			"Number of resizes that were accepted after they had been deferred.", "retry_trigger"),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "kubelet_pod_resize_duration_milliseconds",
			Help:    "Duration in milliseconds of resizing a pod, by success.",
			Buckets: []float64{10, 50, 100, 500, 1000, 2000, 5000, 10000, 20000, 30000, 60000, 120000, 300000, 600000},
		}, []string{"success"}),
	}
}

// Register registers the metrics of resizes. Call it once.
func (s *Resizes) Register(reg prometheus.Registerer) error {
	m := s.metrics
	var errs []error
	for _, c := range []prometheus.Collector{m.requested, m.infeasible, m.accepted, m.took, newOpen(s)} {
		errs = append(errs, reg.Register(c))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("register metrics of resizes: %w", err)
	}
	return nil
}

// request counts each change from was to want.
func (m metrics) request(was, want Sizes) {
	for name, now := range want {
		before, ok := was[name]
		if !ok || name == Whole {
			continue // a new container, or the pod: the kubelet counts containers
		}
		for _, resource := range resizable() {
			for requirement, lists := range map[string][2]corev1.ResourceList{"requests": {before.Requests,
				now.Requests}, "limits": {before.Limits, now.Limits}} {
				if o := operation(lists[0], lists[1], resource); o != "" {
					m.requested.WithLabelValues(string(resource), requirement, o).Inc()
				}
			}
		}
	}
}

// operation names the change of one value, "" for none.
func operation(was, now corev1.ResourceList, name corev1.ResourceName) string {
	a, b := was[name], now[name]
	switch {
	case a.IsZero() && b.IsZero():
		return ""
	case b.IsZero():
		return "remove"
	case a.IsZero():
		return "add"
	case b.Cmp(a) < 0:
		return "decrease"
	case b.Cmp(a) > 0:
		return "increase"
	}
	return ""
}

func (m metrics) tried(took time.Duration, err error) {
	m.took.WithLabelValues(strconv.FormatBool(err == nil)).Observe(float64(took.Milliseconds()))
}

// open implements prometheus.Collector. It counts the resizes that are not complete.
type open struct {
	of                  *Resizes
	pending, inProgress *prometheus.Desc
}

func newOpen(s *Resizes) open {
	return open{
		of: s,
		pending: prometheus.NewDesc("kubelet_pod_pending_resizes",
			"Number of pods whose resize is pending, by reason.", []string{"reason"}, nil),
		inProgress: prometheus.NewDesc("kubelet_pod_in_progress_resizes",
			"Number of pods whose resize was accepted and is not complete.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (o open) Describe(ch chan<- *prometheus.Desc) {
	ch <- o.pending
	ch <- o.inProgress
}

// Collect implements prometheus.Collector.
func (o open) Collect(ch chan<- prometheus.Metric) {
	pending, inProgress := map[string]int{}, 0
	o.of.mu.Lock()
	for _, e := range o.of.pods {
		if e.pending.reason != "" {
			pending[strings.ToLower(e.pending.reason)]++
		}
		if e.Resizing {
			inProgress++
		}
	}
	o.of.mu.Unlock()
	for reason, n := range pending {
		ch <- prometheus.MustNewConstMetric(o.pending, prometheus.GaugeValue, float64(n), reason)
	}
	ch <- prometheus.MustNewConstMetric(o.inProgress, prometheus.GaugeValue, float64(inProgress))
}
