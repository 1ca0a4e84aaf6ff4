package gate

import "github.com/prometheus/client_golang/prometheus"

// counts are the metrics of admission, under the kubelet's names.
type counts struct{ rejections, preemptions *prometheus.CounterVec }

func newCounts(metrics prometheus.Registerer) counts {
	c := counts{
		rejections: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_admission_rejections_total",
			Help: "Pods that were rejected, by reason.",
		}, []string{"reason"}),
		preemptions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_preemptions",
			Help: "Pods that were ended to make room for a critical one, by the first resource that it lacked.",
		}, []string{"preemption_signal"}),
	}
	metrics.MustRegister(c.rejections, c.preemptions)
	return c
}
