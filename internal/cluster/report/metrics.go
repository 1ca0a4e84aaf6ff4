package report

import "github.com/prometheus/client_golang/prometheus"

// newSynced returns the kubelet's histogram of the time until a status has reached the API server.
func newSynced() prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "kubelet_pod_status_sync_duration_seconds",
		Help: "Duration in seconds from a change of a pod's status until the API server has taken it, also if it " +
			"changed more than once in between.",
		Buckets: []float64{0.010, 0.050, 0.100, 0.500, 1, 5, 10, 20, 30, 45, 60},
	})
}

// Register registers the metrics of the writer. Call it once.
func (w *Writer) Register(reg prometheus.Registerer) error { return reg.Register(w.synced) }
