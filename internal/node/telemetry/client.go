package telemetry

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/metrics"
)

// Client counts all requests of this process to API servers, under the names that all Kubernetes components use.
// client-go accepts its metrics only once in a process: only the first call has an effect, so the program calls it
// once.
func Client(reg prometheus.Registerer) error {
	durations := []float64{0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60}
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rest_client_requests_total",
		Help: "Cumulative number of requests to the API server, by status code, method and host.",
	}, []string{"code", "method", "host"})
	retries := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rest_client_request_retries_total",
		Help: "Cumulative number of requests to the API server that were repeated, by status code, verb and host.",
	}, []string{"code", "verb", "host"})
	latency := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "rest_client_request_duration_seconds",
		Help: "Duration in seconds of requests to the API server, by verb and host.", Buckets: durations,
	}, []string{"verb", "host"})
	limited := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "rest_client_rate_limiter_duration_seconds",
		Help:    "Time in seconds that requests were held back by the client's own limit, by verb and host.",
		Buckets: durations,
	}, []string{"verb", "host"})
	if err := errors.Join(reg.Register(requests), reg.Register(retries), reg.Register(latency),
		reg.Register(limited)); err != nil {
		return fmt.Errorf("register metrics of the API client: %w", err)
	}
	metrics.Register(metrics.RegisterOpts{
		RequestResult: requestCounter{requests}, RequestRetry: requestCounter{retries},
		RequestLatency: durationOf{latency}, RateLimiterLatency: durationOf{limited},
	})
	return nil
}

// requestCounter adapts a counter to client-go.
type requestCounter struct{ *prometheus.CounterVec }

// Increment implements metrics.ResultMetric.
func (c requestCounter) Increment(_ context.Context, code, method, host string) {
	c.WithLabelValues(code, method, host).Inc()
}

// IncrementRetry implements metrics.RetryMetric.
func (c requestCounter) IncrementRetry(_ context.Context, code, method, host string) {
	c.WithLabelValues(code, method, host).Inc()
}

// durationOf adapts a histogram to client-go.
type durationOf struct{ *prometheus.HistogramVec }

// Observe implements metrics.LatencyMetric.
func (d durationOf) Observe(_ context.Context, verb string, u url.URL, took time.Duration) {
	d.WithLabelValues(verb, u.Host).Observe(took.Seconds())
}
