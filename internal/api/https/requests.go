package https

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// requests counts and times requests, under the kubelet's metric names.
type requests struct {
	total    *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	inflight *prometheus.GaugeVec
	sockets  *prometheus.CounterVec
}

func newRequests(to prometheus.Registerer) (*requests, error) {
	labels := []string{"method", "path", "server_type", "long_running"}
	r := &requests{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_http_requests_total", Help: "HTTP requests received since the agent started."}, labels),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_http_requests_duration_seconds", Help: "Time to serve HTTP requests, in seconds."}, labels),
		inflight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubelet_http_inflight_requests", Help: "HTTP requests under way."}, labels),
		sockets: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_websocket_streaming_requests_total", Help: "Streams into pods that came as WebSockets."},
			[]string{"subresource"}),
	}
	for _, c := range []prometheus.Collector{r.total, r.seconds, r.inflight, r.sockets} {
		if err := to.Register(c); err != nil {
			return nil, fmt.Errorf("register request metrics: %w", err)
		}
	}
	return r, nil
}

// begin counts a request. Call the returned function when the request has been answered.
func (r *requests) begin(kind, method, path string) func() {
	start := time.Now()
	b := bucket(path)
	labels := []string{methodBucket(method), b, kind, longRunning(b)}
	r.total.WithLabelValues(labels...).Inc()
	r.inflight.WithLabelValues(labels...).Inc()
	return func() {
		r.inflight.WithLabelValues(labels...).Dec()
		r.seconds.WithLabelValues(labels...).Observe(time.Since(start).Seconds())
	}
}
