package dra

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/status"
)

// anyDriver is the kubelet's label for all drivers together.
const anyDriver = "<any>"

// metrics have the names of the kubelet's metrics.
type metrics struct {
	operations, calls *prometheus.HistogramVec
	used              *prometheus.Desc
	inUse             func() map[string]int
}

func newMetrics(reg prometheus.Registerer, inUse func() map[string]int) (*metrics, error) {
	buckets := prometheus.ExponentialBucketsRange(.1, 40, 15)
	m := &metrics{
		operations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "dra_operations_duration_seconds", Buckets: buckets,
			Help: "How long the ResourceClaims of a pod took to be prepared or unprepared.",
		}, []string{"operation_name", "is_error"}),
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "dra_grpc_operations_duration_seconds", Buckets: buckets,
			Help: "How long DRA drivers took for a call.",
		}, []string{"driver_name", "method_name", "grpc_status_code"}),
		used: prometheus.NewDesc("dra_resource_claims_in_use",
			"ResourceClaims that are prepared, by driver; <any> for all.", []string{"driver_name"}, nil),
		inUse: inUse,
	}
	if reg == nil {
		return m, nil
	}
	if err := errors.Join(reg.Register(m.operations), reg.Register(m.calls), reg.Register(m)); err != nil {
		return nil, fmt.Errorf("register metrics of dynamic resources: %w", err)
	}
	return m, nil
}

// Describe implements prometheus.Collector. Claims are counted at the time of the scrape.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) { ch <- m.used }

func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for driver, n := range m.inUse() {
		ch <- prometheus.MustNewConstMetric(m.used, prometheus.GaugeValue, float64(n), driver)
	}
}

func (m *metrics) operation(name string, err error, took time.Duration) {
	m.operations.WithLabelValues(name, strconv.FormatBool(err != nil)).Observe(took.Seconds())
}

func (m *metrics) call(driver, method string, err error, took time.Duration) {
	m.calls.WithLabelValues(driver, method, status.Code(err).String()).Observe(took.Seconds())
}
