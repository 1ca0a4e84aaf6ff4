package plugin

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Register registers the metric of plugins. Call it once.
func (w *Watcher) Register(reg prometheus.Registerer) error {
	if err := reg.Register(total{w}); err != nil {
		return fmt.Errorf("register metrics of plugins: %w", err)
	}
	return nil
}

// note records whether the plugin behind a socket is registered.
func (w *Watcher) note(socket string, registered bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sockets[socket] = registered
}

func (w *Watcher) forget(socket string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.sockets, socket)
}

// total counts the plugins at each scrape. It implements prometheus.Collector.
type total struct{ of *Watcher }

func (total) desc() *prometheus.Desc {
	return prometheus.NewDesc("plugin_manager_total_plugins",
		"Sockets of plugins, and those of registered plugins.",
		[]string{"socket_path", "state"}, nil)
}

// Describe implements prometheus.Collector.
func (t total) Describe(ch chan<- *prometheus.Desc) { ch <- t.desc() }

// Collect implements prometheus.Collector.
func (t total) Collect(ch chan<- prometheus.Metric) {
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	for socket, registered := range t.of.sockets {
		ch <- prometheus.MustNewConstMetric(t.desc(), prometheus.GaugeValue, 1, socket, "desired_state_of_world")
		if registered {
			ch <- prometheus.MustNewConstMetric(t.desc(), prometheus.GaugeValue, 1, socket, "actual_state_of_world")
		}
	}
}
