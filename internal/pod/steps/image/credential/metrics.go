package credential

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics measures the runs of plugins, under the kubelet's names.
type metrics struct {
	took   *prometheus.HistogramVec
	failed *prometheus.CounterVec
}

func newMetrics() metrics {
	return metrics{
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_credential_provider_plugin_duration",
			Help: "Duration in seconds of running a credential provider plugin.", Buckets: prometheus.DefBuckets,
		}, []string{"plugin_name"}),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_credential_provider_plugin_errors_total",
			Help: "Number of runs of a credential provider plugin that failed.",
		}, []string{"plugin_name"}),
	}
}

// Register registers the metrics of plugins. Call it once.
func (k *Keyring) Register(reg prometheus.Registerer) error {
	if err := errors.Join(reg.Register(k.metrics.took), reg.Register(k.metrics.failed)); err != nil {
		return fmt.Errorf("register metrics of credential providers: %w", err)
	}
	return nil
}

func (m metrics) ran(name string, took time.Duration, err error) {
	m.took.WithLabelValues(name).Observe(took.Seconds())
	if err != nil {
		m.failed.WithLabelValues(name).Inc()
	}
}
