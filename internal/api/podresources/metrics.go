package podresources

import (
	"errors"
	"fmt"
	"path"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the kubelet's counters of PodResources calls.
type metrics struct {
	total              *prometheus.CounterVec
	requests, failures map[string]*prometheus.CounterVec // by method
}

func newMetrics() metrics {
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_pod_resources_endpoint_" + name,
			Help: help}, []string{"server_api_version"})
	}
	m := metrics{
		total:    counter("requests_total", "Calls of the PodResources API, by its version."),
		requests: map[string]*prometheus.CounterVec{}, failures: map[string]*prometheus.CounterVec{},
	}
	for method, name := range map[string]string{"List": "list", "Get": "get",
		"GetAllocatableResources": "get_allocatable"} {
		m.requests[method] = counter("requests_"+name, "Calls of "+method+" of the PodResources API, by its version.")
		m.failures[method] = counter("errors_"+name,
			"Calls of "+method+" of the PodResources API that failed, by its version.")
	}
	return m
}

// Register registers the call counters with reg. Call it once.
func (s *Server) Register(reg prometheus.Registerer) error {
	errs := []error{reg.Register(s.metrics.total)}
	for method, c := range s.metrics.requests {
		errs = append(errs, reg.Register(c), reg.Register(s.metrics.failures[method]))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("register metrics of the PodResources API: %w", err)
	}
	return nil
}

// count counts one call of the gRPC method /v1.PodResourcesLister/METHOD.
func (m metrics) count(call string, err error) {
	method := path.Base(call)
	requests, known := m.requests[method]
	if !known {
		return
	}
	m.total.WithLabelValues("v1").Inc()
	requests.WithLabelValues("v1").Inc()
	if err != nil {
		m.failures[method].WithLabelValues("v1").Inc()
	}
}
