package volume

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the kubelet's, name for name, so that dashboards keep working.
type metrics struct{ operations *prometheus.HistogramVec }

func newMetrics() metrics {
	return metrics{prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "storage_operation_duration_seconds",
		Help:    "Duration in seconds of mounting and unmounting volumes, by kind and status.",
		Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600},
	}, []string{"volume_plugin", "operation_name", "status", "migrated"})}
}

// Register registers the metrics of volumes. Call it once.
func (v *Volumes) Register(reg prometheus.Registerer) error {
	if err := errors.Join(reg.Register(v.metrics.operations), reg.Register(population{v})); err != nil {
		return fmt.Errorf("register metrics of volumes: %w", err)
	}
	return nil
}

// operation is an operation on a volume.
type operation struct {
	// dir is the name of the directory of the volume's kind.
	dir, name string
	// migrated: the volume is an in-tree volume of a cloud, and was translated to CSI.
	migrated bool
}

// observe counts an operation on a volume, by its kind and result.
func (m metrics) observe(o operation, begin time.Time, err error) {
	status := "success"
	if err != nil {
		status = "fail-unknown"
	}
	m.operations.WithLabelValues(plugin(o.dir), o.name, status, strconv.FormatBool(o.migrated)).
		Observe(time.Since(begin).Seconds())
}

// plugin is the kubelet's name of a kind, from the name of its directory.
func plugin(dir string) string { return strings.Replace(dir, "~", "/", 1) }

// population counts the mounted volumes at each scrape.
type population struct{ *Volumes }

func (population) desc() *prometheus.Desc {
	return prometheus.NewDesc("volume_manager_total_volumes", "Number of volumes that are mounted, by kind.",
		[]string{"plugin_name", "state"}, nil)
}

// Describe implements prometheus.Collector.
func (p population) Describe(ch chan<- *prometheus.Desc) { ch <- p.desc() }

// Collect implements prometheus.Collector.
func (p population) Collect(ch chan<- prometheus.Metric) {
	count := map[string]int{}
	p.mu.Lock()
	for _, volumes := range p.mounted {
		for _, m := range volumes {
			count[plugin(m.kind.Dir())]++
		}
	}
	p.mu.Unlock()
	for name, n := range count {
		ch <- prometheus.MustNewConstMetric(p.desc(), prometheus.GaugeValue, float64(n), name, "actual_state_of_world")
	}
}
