package probe

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/pod/plan"
)

// metrics has the kubelet's metric names, so that dashboards keep working.
type metrics struct {
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "prober_probe_total",
			Help: "Cumulative number of a liveness, readiness or startup probe for a container by result.",
		}, []string{"probe_type", "result", "container", "pod", "namespace", "pod_uid"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "prober_probe_duration_seconds",
			Help: "Duration in seconds for a probe response.",
		}, []string{"probe_type", "container", "pod", "namespace"}),
	}
	if reg == nil {
		return m, nil
	}
	if err := errors.Join(reg.Register(m.total), reg.Register(m.duration)); err != nil {
		return nil, fmt.Errorf("register probe metrics: %w", err)
	}
	return m, nil
}

// count adds one probe. Only successful probes add their duration.
func (m *metrics) count(p *corev1.Pod, container string, k Kind, v plan.Verdict, took time.Duration) {
	word := [...]string{plan.Unknown: "unknown", plan.Success: "successful", plan.Failure: "failed"}[v]
	m.total.WithLabelValues(k.String(), word, container, p.Name, p.Namespace, string(p.UID)).Inc()
	if v == plan.Success {
		m.duration.WithLabelValues(k.String(), container, p.Name, p.Namespace).Observe(took.Seconds())
	}
}

// forget deletes the series of a pod.
func (m *metrics) forget(p *corev1.Pod) {
	m.total.DeletePartialMatch(prometheus.Labels{"pod_uid": string(p.UID)})
	m.duration.DeletePartialMatch(prometheus.Labels{"pod": p.Name, "namespace": p.Namespace})
}
