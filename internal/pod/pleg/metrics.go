package pleg

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics have the kubelet's names. They measure relists. Events are handled between relists, so an interval of
// minutes means no delay.
type metrics struct {
	duration, interval prometheus.Histogram
	lastSeen           prometheus.Gauge
	last               time.Time // start of the last relist; used only by the goroutine that relists
}

func newMetrics() *metrics {
	return &metrics{
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "kubelet_pleg_relist_duration_seconds",
			Help:    "Duration in seconds of a relist: comparing everything in the runtime with the table.",
			Buckets: prometheus.DefBuckets,
		}),
		interval: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "kubelet_pleg_relist_interval_seconds",
			Help:    "Interval in seconds between the starts of two relists.",
			Buckets: []float64{.5, 1, 2, 5, 10, 30, 60, 90, 120, 300, 600},
		}),
		lastSeen: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubelet_pleg_last_seen_seconds", Help: "When the last relist succeeded, in seconds since the epoch.",
		}),
	}
}

// Register registers the metrics of relists. Call it once.
func (p *PLEG) Register(reg prometheus.Registerer) error {
	if err := errors.Join(reg.Register(p.metrics.duration), reg.Register(p.metrics.interval),
		reg.Register(p.metrics.lastSeen)); err != nil {
		return fmt.Errorf("register metrics of relists: %w", err)
	}
	return nil
}

// measured runs relist and records its duration.
func (p *PLEG) measured(ctx context.Context, wait bool) error {
	m, begin := p.metrics, p.opts.Now()
	if !m.last.IsZero() {
		m.interval.Observe(begin.Sub(m.last).Seconds())
	}
	m.last = begin
	err := p.relist(ctx, wait)
	now := p.opts.Now()
	m.duration.Observe(now.Sub(begin).Seconds())
	if err == nil {
		m.lastSeen.Set(float64(now.Unix()))
	}
	return err
}
