package cgroup

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the kubelet's, of pods' cgroups.
type metrics struct{ duration *prometheus.HistogramVec }

func newMetrics() metrics {
	return metrics{prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "kubelet_cgroup_manager_duration_seconds",
		Help:    "Duration in seconds of making (create) and removing (destroy) pods' cgroups.",
		Buckets: prometheus.DefBuckets,
	}, []string{"operation_type"})}
}

// Register has cgroups told of. Call it once.
func (c *Cgroups) Register(reg prometheus.Registerer) error {
	if err := reg.Register(c.metrics.duration); err != nil {
		return fmt.Errorf("register metrics of cgroups: %w", err)
	}
	return nil
}

// took is deferred with the moment that an operation begins.
func (m metrics) took(operation string, begin time.Time) {
	m.duration.WithLabelValues(operation).Observe(time.Since(begin).Seconds())
}
