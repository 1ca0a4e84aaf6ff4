package record

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Results of checks, as the kubelet labels them.
const (
	policyAllowed = "credentialPolicyAllowed"
	recordFound   = "credentialRecordFound"
	mustProve     = "mustAuthenticate"
)

func newChecks() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubelet_imagemanager_image_mustpull_checks_total",
		Help: "Number of checks whether a pod may use an image, by result.",
	}, []string{"result"})
}

// Register registers the metrics of records. Call it once.
func (r *Records) Register(reg prometheus.Registerer) error {
	if err := errors.Join(reg.Register(r.checks), reg.Register(sizes{r})); err != nil {
		return fmt.Errorf("register metrics of image records: %w", err)
	}
	return nil
}

// sizes counts the records at each scrape. It implements prometheus.Collector.
type sizes struct{ of *Records }

func (sizes) descs() (intents, pulled *prometheus.Desc) {
	return prometheus.NewDesc("kubelet_imagemanager_ondisk_pullintents",
			"Number of images whose pull has begun and has not ended.", nil, nil),
		prometheus.NewDesc("kubelet_imagemanager_ondisk_pulledrecords",
			"Number of present images that this node has pulled.", nil, nil)
}

// Describe implements prometheus.Collector.
func (s sizes) Describe(ch chan<- *prometheus.Desc) {
	intents, pulled := s.descs()
	ch <- intents
	ch <- pulled
}

// Collect implements prometheus.Collector.
func (s sizes) Collect(ch chan<- prometheus.Metric) {
	s.of.mu.Lock()
	begun, done := len(s.of.pulling), len(s.of.pulled)
	for image := range s.of.unfinished {
		if s.of.pulling[image] == 0 {
			begun++
		}
	}
	s.of.mu.Unlock()
	intents, pulled := s.descs()
	ch <- prometheus.MustNewConstMetric(intents, prometheus.GaugeValue, float64(begun))
	ch <- prometheus.MustNewConstMetric(pulled, prometheus.GaugeValue, float64(done))
}
