package telemetry

import (
	"crypto/tls"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// certificate is implemented by package cert.
type certificate interface {
	// Certificate returns the certificate in use, or nil.
	Certificate() *tls.Certificate
	// Failures counts the failed attempts to renew it.
	Failures() uint64
}

// Certificates returns metrics for the validity of the client and serving certificate, and for failed renewals. Either
// may be nil and then has no metrics.
func Certificates(client, serving certificate, now func() time.Time) []prometheus.Collector {
	ttl := func(name, whose string, c certificate) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: name,
			Help: "Time in seconds that the " + whose +
				" certificate is good for, negative when it has expired, +Inf when there is none.",
		}, func() float64 { return left(c.Certificate(), now()) })
	}
	failures := func(name, whose string, c certificate) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: name,
			Help: "Cumulative number of attempts to renew the " + whose + " certificate that failed.",
		}, func() float64 { return float64(c.Failures()) })
	}
	var all []prometheus.Collector
	if client != nil {
		all = append(all, ttl("kubelet_certificate_manager_client_ttl_seconds", "client", client),
			failures("kubelet_certificate_manager_client_expiration_renew_errors", "client", client))
	}
	if serving != nil {
		all = append(all, ttl("kubelet_certificate_manager_server_ttl_seconds", "server", serving),
			failures("kubelet_server_expiration_renew_errors", "server", serving))
	}
	return all
}

// left returns how many seconds a certificate is still valid.
func left(c *tls.Certificate, now time.Time) float64 {
	if c == nil || c.Leaf == nil {
		return math.Inf(1)
	}
	return c.Leaf.NotAfter.Sub(now).Seconds()
}
