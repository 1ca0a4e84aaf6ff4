package device

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
)

// metrics have the names and buckets of the kubelet's metrics.
type metrics struct {
	allocations *prometheus.HistogramVec
}

func newMetrics() metrics {
	return metrics{
		allocations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "kubelet_device_plugin_alloc_duration_seconds",
			Help:    "Duration in seconds of a device plugin's answers to Allocate, by resource name.",
			Buckets: prometheus.DefBuckets,
		}, []string{"resource_name"}),
	}
}

func (m metrics) register(r prometheus.Registerer) error {
	return r.Register(m.allocations)
}

func (m metrics) allocated(name corev1.ResourceName, took time.Duration) {
	m.allocations.WithLabelValues(string(name)).Observe(took.Seconds())
}
