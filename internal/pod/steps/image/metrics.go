package image

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
)

// metrics measures requests for images and successful pulls, under the kubelet's metric names.
type metrics struct {
	pulls    *prometheus.HistogramVec
	requests *prometheus.CounterVec
}

func newMetrics() metrics {
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubelet_image_manager_ensure_image_requests_total",
		Help: "Number of requests for the image of a container or a volume, by whether it was present and was pulled.",
	}, []string{"pull_policy", "present_locally", "pull_required"})
	return metrics{requests: requests, pulls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "kubelet_image_pull_duration_seconds",
		Help:    "Duration in seconds of image pulls, by the size of the image.",
		Buckets: []float64{1, 5, 10, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600},
	}, []string{"image_size_in_bytes"})}
}

// Register registers the metrics of image pulls. Call it once.
func (s *Images) Register(reg prometheus.Registerer) error {
	if err := errors.Join(reg.Register(s.pool.metrics.pulls), reg.Register(s.pool.metrics.requests)); err != nil {
		return fmt.Errorf("register metrics of image pulls: %w", err)
	}
	return nil
}

// requested counts a request. With the policy Always the agent does not look for the image, so it is unknown whether it
// is there.
func (m metrics) requested(policy corev1.PullPolicy, f finding) {
	present, pulls := strconv.FormatBool(f.image != nil), strconv.FormatBool(f.todo != use)
	if policy == corev1.PullAlways {
		present = "unknown"
	}
	if f.todo == refuse && f.image == nil {
		pulls = "unknown"
	}
	m.requests.WithLabelValues(strings.ToLower(string(policy)), present, pulls).Inc()
}

func (m metrics) pulled(size uint64, took time.Duration) {
	m.pulls.WithLabelValues(sizeClass(size)).Observe(took.Seconds())
}

// sizeClass returns the kubelet's label for an image size, or N/A if the runtime did not report the size.
func sizeClass(size uint64) string {
	const mb, gb = 1 << 20, 1 << 30
	class := "N/A"
	for _, c := range []struct {
		above uint64
		name  string
	}{
		{0, "0-10MB"}, {10 * mb, "10MB-100MB"}, {100 * mb, "100MB-500MB"}, {500 * mb, "500MB-1GB"}, {gb, "1GB-5GB"},
		{5 * gb, "5GB-10GB"},
		{10 * gb, "10GB-20GB"}, {20 * gb, "20GB-30GB"}, {30 * gb, "30GB-40GB"}, {40 * gb, "40GB-60GB"},
		{60 * gb, "60GB-100GB"}, {100 * gb, "GT100GB"},
	} {
		if size > c.above {
			class = c.name
		}
	}
	return class
}
