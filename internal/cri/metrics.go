package cri

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
)

// metrics are the kubelet's, name for name, so that dashboards keep working.
type metrics struct {
	total    *prometheus.CounterVec
	failed   *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	label := []string{"operation_type"}
	m := &metrics{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_runtime_operations_total",
			Help: "Calls to the container runtime by operation type.",
		}, label),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_runtime_operations_errors_total",
			Help: "Failed calls to the container runtime by operation type.",
		}, label),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "kubelet_runtime_operations_duration_seconds",
			Help:    "Duration in seconds of calls to the container runtime by operation type.",
			Buckets: prometheus.ExponentialBuckets(.005, 2.5, 14), // the kubelet's: 5 ms to 12 min
		}, label),
	}
	if reg == nil {
		return m, nil
	}
	err := errors.Join(register(reg, &m.total), register(reg, &m.failed), register(reg, &m.duration))
	if err != nil {
		return nil, fmt.Errorf("register runtime metrics: %w", err)
	}
	return m, nil
}

// register replaces *c by the collector that an earlier client registered.
func register[C prometheus.Collector](reg prometheus.Registerer, c *C) error {
	err := reg.Register(*c)
	if have, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if *c, ok = have.ExistingCollector.(C); ok {
			return nil
		}
	}
	return err
}

func (m *metrics) countCall(next call) call {
	return func(ctx context.Context, method string, req, reply any, opts ...grpc.CallOption) error {
		start := time.Now()
		err := next(ctx, method, req, reply, opts...)
		op := operation(callName(method))
		m.total.WithLabelValues(op).Inc()
		m.duration.WithLabelValues(op).Observe(time.Since(start).Seconds())
		if err != nil {
			m.failed.WithLabelValues(op).Inc()
		}
		return err
	}
}
