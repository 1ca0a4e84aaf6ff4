package kubeapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"

	"github.com/berth-run/berth/internal/config"
)

// Options of Connect. Base, Cluster and Log are required.
type Options struct {
	// Base says where the server is, whom to trust and, unless it is by
	// Certificate, who the node is.
	Base    *rest.Config
	Cluster *config.Cluster
	// Version is told as the user agent berth/Version.
	Version string
	// Certificate is the client certificate of the next handshake; nil, or a
	// result of nil, sends that of Base, or none.
	Certificate func() *tls.Certificate
	Log         *slog.Logger
}

// API are the clients of one API server.
type API struct {
	// Main is for reads, watches and whatever is not below.
	Main kubernetes.Interface
	// Statuses is for the statuses of pods.
	Statuses kubernetes.Interface
	// Heartbeat is for the lease and the node's status. It has no rate, and a
	// request ends after the lower of nodeStatusUpdateFrequency and the lease.
	Heartbeat kubernetes.Interface
	// Events is for events alone.
	Events kubernetes.Interface
	// Health says whether the server answers any of them.
	Health *Health

	connections *connrotation.ConnectionTracker
}

// Connect makes the clients. Nothing is sent before they are used.
func Connect(o Options) (*API, error) {
	a := &API{Health: newHealth(time.Now), connections: connrotation.NewConnectionTracker()}
	c := o.Cluster
	eventRate := c.Events
	if eventRate.QPS == 0 {
		eventRate.QPS = -1
	}
	main, err := a.base(o)
	if err != nil {
		return nil, err
	}
	heartbeat, err := a.base(o)
	if err != nil {
		return nil, err
	}
	heartbeat.Timeout = min(c.Status.UpdateFrequency, c.Status.LeaseDuration)
	events, err := a.base(o)
	if err != nil {
		return nil, err
	}
	for _, client := range []struct {
		to   *kubernetes.Interface
		on   *rest.Config
		rate config.Rate
	}{
		{&a.Main, main, c.Main}, {&a.Statuses, main, c.Statuses}, {&a.Heartbeat, heartbeat, config.Rate{QPS: -1}},
		{&a.Events, events, eventRate},
	} {
		rc := rest.CopyConfig(client.on)
		rc.QPS, rc.Burst = float32(client.rate.QPS), client.rate.Burst
		if *client.to, err = kubernetes.NewForConfig(rc); err != nil {
			return nil, fmt.Errorf("make client of API server %s: %w", o.Base.Host, err)
		}
	}
	return a, nil
}

// CloseConnections ends all connections, and what is under way on them, so that
// the next requests show the newest client certificate. What fails by it says
// nothing about the server.
func (a *API) CloseConnections() {
	a.Health.forget()
	a.connections.CloseAll()
}

// base is a configuration with a connection of its own.
func (a *API) base(o Options) (*rest.Config, error) {
	rc := rest.CopyConfig(o.Base)
	rc.UserAgent = "berth/" + o.Version
	rc.ContentType = o.Cluster.ContentType
	if rc.ContentType == "application/vnd.kubernetes.protobuf" {
		rc.AcceptContentTypes = rc.ContentType + ",application/json" // what the server has no protobuf for
	}
	rc.WarningHandlerWithContext = warnings{o.Log}
	dial := connrotation.NewDialerWithTracker(
		(&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext, a.connections).DialContext
	rc.Wrap(a.Health.observe)
	if rc.ExecProvider != nil || rc.AuthProvider != nil { // a plugin makes the certificate, and its own transport
		rc.Dial = dial
		return rc, nil
	}
	tlsConfig, err := rest.TLSConfigFor(rc)
	if err != nil {
		return nil, fmt.Errorf("read TLS settings of API server %s: %w", rc.Host, err)
	}
	if tlsConfig == nil { // nothing but the machine's authorities is trusted
		tlsConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if o.Certificate != nil {
		fixed := tlsConfig.GetClientCertificate
		tlsConfig.GetClientCertificate = func(r *tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if c := o.Certificate(); c != nil {
				return c, nil
			}
			if fixed != nil {
				return fixed(r)
			}
			return &tls.Certificate{}, nil
		}
	}
	proxy := http.ProxyFromEnvironment
	if rc.Proxy != nil {
		proxy = rc.Proxy
	}
	// SetTransportDefaults turns on HTTP/2 with pings on a silent connection, which
	// find a server that is gone without a word.
	rc.Transport = utilnet.SetTransportDefaults(&http.Transport{
		Proxy: proxy, TLSHandshakeTimeout: 10 * time.Second, TLSClientConfig: tlsConfig, DialContext: dial,
		DisableCompression:  rc.DisableCompression,
		MaxIdleConnsPerHost: 25,
	})
	rc.TLSClientConfig = rest.TLSClientConfig{} // it is in the transport
	rc.Proxy = nil
	return rc, nil
}

// warnings logs what the server warns of.
type warnings struct{ log *slog.Logger }

func (w warnings) HandleWarningHeaderWithContext(ctx context.Context, code int, _ string, text string) {
	if code == 299 && text != "" {
		w.log.LogAttrs(ctx, slog.LevelDebug, "the API server warns", slog.String("warning", text))
	}
}

// observe tells Health of each request.
func (h *Health) observe(rt http.RoundTripper) http.RoundTripper { return &observer{rt, h} }

type observer struct {
	http.RoundTripper
	health *Health
}

// WrappedRoundTripper lets idle connections below be found.
func (o *observer) WrappedRoundTripper() http.RoundTripper { return o.RoundTripper }

func (o *observer) RoundTrip(r *http.Request) (*http.Response, error) {
	began := o.health.now()
	answer, err := o.RoundTripper.RoundTrip(r)
	if errors.Is(r.Context().Err(), context.Canceled) {
		return answer, err // whoever asked does not want to know any more
	}
	out := outcome{Began: began, Ended: o.health.now(), Err: err}
	if err == nil && unavailable(answer.StatusCode) {
		out.Err = fmt.Errorf("API server: %s", answer.Status)
	}
	o.health.note(out)
	return answer, err
}
