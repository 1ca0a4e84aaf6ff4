package cri

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// metrics have the names of the kubelet's metrics, so that dashboards keep working.
type metrics struct {
	total    *prometheus.CounterVec
	failed   *prometheus.CounterVec
	duration *prometheus.HistogramVec
	pods     podMetrics
}

// podMetrics measure the calls that start a pod by making its sandbox.
type podMetrics struct {
	started, failed prometheus.Counter
	// The same counts, only of pods with a user namespace of their own.
	startedUserns, failedUserns prometheus.Counter
	sandboxes                   *prometheus.HistogramVec
	sandboxErrors               *prometheus.CounterVec
}

func newPodMetrics() podMetrics {
	return podMetrics{
		started: prometheus.NewCounter(prometheus.CounterOpts{Name: "kubelet_started_pods_total",
			Help: "Cumulative number of attempts to start a pod."}),
		failed: prometheus.NewCounter(prometheus.CounterOpts{Name: "kubelet_started_pods_errors_total",
			Help: "Cumulative number of attempts to start a pod that failed."}),
		startedUserns: prometheus.NewCounter(prometheus.CounterOpts{Name: "kubelet_started_user_namespaced_pods_total",
			Help: "Cumulative number of attempts to start a pod with a user namespace of its own."}),
		failedUserns: prometheus.NewCounter(
			prometheus.CounterOpts{Name: "kubelet_started_user_namespaced_pods_errors_total",
				Help: "Cumulative number of attempts to start a pod with a user namespace of its own that failed."}),
		sandboxes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_run_podsandbox_duration_seconds",
			Help: "Duration in seconds of making a pod's sandbox, by runtime handler.", Buckets: prometheus.DefBuckets,
		}, []string{"runtime_handler"}),
		sandboxErrors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_run_podsandbox_errors_total",
			Help: "Cumulative number of sandboxes that could not be made, by runtime handler.",
		}, []string{"runtime_handler"}),
	}
}

func (m podMetrics) count(r *runtimeapi.RunPodSandboxRequest, took time.Duration, err error) {
	handler := r.GetRuntimeHandler()
	if u := r.GetConfig().GetLinux().GetSecurityContext().GetNamespaceOptions().GetUsernsOptions(); u != nil &&
		u.Mode == runtimeapi.NamespaceMode_POD {
		m.startedUserns.Inc()
		if err != nil {
			m.failedUserns.Inc()
		}
	}
	m.started.Inc()
	m.sandboxes.WithLabelValues(handler).Observe(took.Seconds())
	if err != nil {
		m.failed.Inc()
		m.sandboxErrors.WithLabelValues(handler).Inc()
	}
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	label := []string{"operation_type"}
	m := &metrics{
		pods: newPodMetrics(),
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
	err := errors.Join(register(reg, &m.total), register(reg, &m.failed), register(reg, &m.duration),
		register(reg, &m.pods.started), register(reg, &m.pods.failed), register(reg, &m.pods.startedUserns),
		register(reg, &m.pods.failedUserns), register(reg, &m.pods.sandboxes), register(reg, &m.pods.sandboxErrors))
	if err != nil {
		return nil, fmt.Errorf("register runtime metrics: %w", err)
	}
	return m, nil
}

// register registers *c. If an earlier client has registered the same metric, *c becomes that client's collector.
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
		took := time.Since(start)
		m.duration.WithLabelValues(op).Observe(took.Seconds())
		if r, ok := req.(*runtimeapi.RunPodSandboxRequest); ok {
			m.pods.count(r, took, err)
		}
		if err != nil {
			m.failed.WithLabelValues(op).Inc()
		}
		return err
	}
}
