package cgroup

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics measures operations on pods' cgroups, under the kubelet's metric name.
type metrics struct{ duration *prometheus.HistogramVec }

func newMetrics() metrics {
	return metrics{prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "kubelet_cgroup_manager_duration_seconds",
		Help:    "Duration in seconds of making (create) and removing (destroy) pods' cgroups.",
		Buckets: prometheus.DefBuckets,
	}, []string{"operation_type"})}
}

// Register registers the metrics of cgroups. Call it once.
func (c *Cgroups) Register(reg prometheus.Registerer) error {
	if err := reg.Register(c.metrics.duration); err != nil {
		return fmt.Errorf("register metrics of cgroups: %w", err)
	}
	return nil
}

// took records the duration of an operation that began at begin. Callers defer it.
func (m metrics) took(operation string, begin time.Time) {
	m.duration.WithLabelValues(operation).Observe(time.Since(begin).Seconds())
}
