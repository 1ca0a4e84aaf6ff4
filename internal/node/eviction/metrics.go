package eviction

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics counts evictions in the kubelet's series.
type Metrics struct {
	evictions *prometheus.CounterVec
	age       *prometheus.HistogramVec
}

// NewMetrics makes the series.
func NewMetrics() Metrics {
	return Metrics{
		evictions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_evictions", Help: "Pods that were evicted, by the signal or the kind of limit"},
			[]string{"eviction_signal"}),
		age: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "kubelet_eviction_stats_age_seconds",
			Help:    "Time between the reading of a signal and the eviction of a pod for it",
			Buckets: prometheus.DefBuckets}, []string{"eviction_signal"}),
	}
}

// Register registers the series.
func (m Metrics) Register(r prometheus.Registerer) error {
	return errors.Join(r.Register(m.evictions), r.Register(m.age))
}

// Exceeded counts the eviction of a pod for a limit of its own.
func (m Metrics) Exceeded(signal string) { m.evictions.WithLabelValues(signal).Inc() }

func (m Metrics) evicted(s Signal, age time.Duration) {
	m.evictions.WithLabelValues(string(s)).Inc()
	m.age.WithLabelValues(string(s)).Observe(age.Seconds())
}
