package podcert

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// states describes the kubelet's metric of the same name.
func states() *prometheus.Desc {
	return prometheus.NewDesc("kubelet_podcertificate_states",
		"Number of podCertificate sources of projected volumes, by signer and state.",
		[]string{"signer_name", "state"}, nil)
}

// Describe implements prometheus.Collector.
func (*Certificates) Describe(to chan<- *prometheus.Desc) { to <- states() }

// Collect implements prometheus.Collector.
func (c *Certificates) Collect(to chan<- prometheus.Metric) {
	now, counts := time.Now(), map[[2]string]int{}
	c.mu.Lock()
	for _, e := range c.entries {
		counts[[2]string{e.want.SignerName, e.state.word(now)}]++
	}
	c.mu.Unlock()
	for labels, n := range counts {
		to <- prometheus.MustNewConstMetric(states(), prometheus.GaugeValue, float64(n), labels[0], labels[1])
	}
}
