package garbage

import "github.com/prometheus/client_golang/prometheus"

// Reasons for the removal of an image, as the kubelet counts them.
const (
	forAge   = "age"
	forSpace = "space"
)

func newRemoved() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubelet_image_garbage_collected_total",
		Help: "Images that were removed because nobody had used them for long, or for want of space.",
	}, []string{"reason"})
}

// Register registers the metric of image removals. Call it once.
func (c *Collector) Register(reg prometheus.Registerer) error { return reg.Register(c.removed) }
