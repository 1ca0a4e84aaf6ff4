package shutdown

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the start and end of the last shutdown under the kubelet's names, in seconds since 1970. 0 means never;
// an end of 0 also means that it is not over.
type metrics struct{ began, ended prometheus.Gauge }

func newMetrics() metrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "kubelet_graceful_shutdown_" + name + "_time_seconds",
			Help: help})
	}
	return metrics{
		began: gauge("start", "Last graceful shutdown start time since unix epoch in seconds"),
		ended: gauge("end", "Last graceful shutdown end time since unix epoch in seconds"),
	}
}

func (m metrics) show(j Journal) {
	m.began.Set(seconds(j.Began))
	m.ended.Set(seconds(j.Ended))
}

func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixNano()) / 1e9
}

// Register registers the manager's metrics.
func (m *Manager) Register(to prometheus.Registerer) error {
	return errors.Join(to.Register(m.metrics.began), to.Register(m.metrics.ended))
}
