package fleet

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/pod/worker"
)

// metrics are the metrics of pod workers, under the kubelet's names.
type metrics struct {
	worked     *prometheus.HistogramVec
	began      prometheus.Histogram
	containers prometheus.Histogram
}

func newMetrics() metrics {
	return metrics{
		worked: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_pod_worker_duration_seconds", Buckets: prometheus.DefBuckets,
			Help: "Duration in seconds of the work on a single pod, from the first thing that is done until nothing " +
				"is under way, by operation type.",
		}, []string{"operation_type"}),
		began: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubelet_pod_worker_start_duration_seconds", Buckets: prometheus.DefBuckets,
			Help: "Duration in seconds from the node's first sight of a pod until it has a worker.",
		}),
		containers: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubelet_containers_per_pod_count", Buckets: prometheus.ExponentialBuckets(1, 2, 5),
			Help: "The number of containers of a pod.",
		}),
	}
}

func (m metrics) register(reg prometheus.Registerer) error {
	if err := errors.Join(reg.Register(m.worked), reg.Register(m.began), reg.Register(m.containers)); err != nil {
		return fmt.Errorf("register metrics of pods' workers: %w", err)
	}
	return nil
}

func (m metrics) took(o worker.Operation, d time.Duration) {
	m.worked.WithLabelValues(string(o)).Observe(d.Seconds())
}

// begins records a pod that gets a worker. after is the time since the node first saw the pod.
func (m metrics) begins(p *corev1.Pod, after time.Duration) {
	m.began.Observe(after.Seconds())
	m.containers.Observe(float64(len(p.Spec.Containers)))
}
