package gate

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berth-run/berth/internal/pod/admission"
)

// Counts are the metrics of admission, under the kubelet's names.
type Counts struct{ rejections, preemptions *prometheus.CounterVec }

// NewCounts makes and registers the metrics.
func NewCounts(metrics prometheus.Registerer) Counts {
	c := Counts{
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

func (c Counts) rejected(why string) { c.rejections.WithLabelValues(admission.MetricReason(why)).Inc() }

// preempted counts a preemption by the resource that a critical pod lacked. why is "OutOf" and the name of the
// resource.
func (c Counts) preempted(why string) {
	c.preemptions.WithLabelValues(strings.TrimPrefix(why, "OutOf")).Inc()
}
