package container

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/pod"
)

// metrics counts attempts to start containers, under the kubelet's metric names.
type metrics struct{ started, failed *prometheus.CounterVec }

func newMetrics() metrics {
	return metrics{
		started: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_started_containers_total",
			Help: "Cumulative number of attempts to start a container, by its type.",
		}, []string{"container_type"}),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_started_containers_errors_total",
			Help: "Cumulative number of attempts to start a container that failed, by its type and reason.",
		}, []string{"container_type", "code"}),
	}
}

// Register registers the metrics of container starts. Call it once.
func (s *Containers) Register(reg prometheus.Registerer) error {
	err := errors.Join(reg.Register(s.metrics.started), reg.Register(s.metrics.failed))
	for _, m := range s.handlers.Metrics() {
		err = errors.Join(err, reg.Register(m))
	}
	if err != nil {
		return fmt.Errorf("register metrics of containers: %w", err)
	}
	return nil
}

func (m metrics) count(p *corev1.Pod, name string, err error) {
	kind := "container"
	if c, ok := pod.FindContainer(p, name); ok {
		switch c.Kind {
		case pod.Init, pod.Sidecar:
			kind = "init_container"
		case pod.Ephemeral:
			kind = "ephemeral_container"
		case pod.App:
		}
	}
	m.started.WithLabelValues(kind).Inc()
	if err != nil {
		m.failed.WithLabelValues(kind, cmp.Or(reason.Of(err), "Unknown")).Inc()
	}
}
