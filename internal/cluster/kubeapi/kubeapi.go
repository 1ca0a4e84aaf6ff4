package kubeapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
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
	// Base has the server's address, the trusted authorities and the node's credentials. Identity replaces these
	// credentials.
	Base    *rest.Config
	Cluster *config.Cluster
	// Version is sent as the user agent berth/Version.
	Version string
	// Identity has the client certificate. If it is nil, the certificate in Base is used, if any.
	Identity Identity
	Log      *slog.Logger
}

// Identity is how the node identifies itself to the API server.
type Identity interface {
	// Certificate returns the client certificate for the next handshake. It is nil for the certificate in
	// Options.Base.
	Certificate() *tls.Certificate
	// Replaced receives after another certificate has replaced one.
	Replaced() <-chan struct{}
}

// API holds the clients of one API server.
type API struct {
	// Main is for reads, watches and all requests that have no other client.
	Main kubernetes.Interface
	// Statuses is for the statuses of pods.
	Statuses kubernetes.Interface
	// Heartbeat is for the lease and the node's status. It has no rate limit. A request times out after the lower of
	// nodeStatusUpdateFrequency and the lease duration.
	Heartbeat kubernetes.Interface
	// Events is only for events.
	Events kubernetes.Interface
	// TokenReviews and AccessReviews are for questions about who may use the node's own server. Whoever reaches that
	// server can cause them, so they have the rate of Main but not its budget.
	TokenReviews, AccessReviews kubernetes.Interface
	// Health reports whether the server answers these clients.
	Health *Health

	transports []*transport
	replaced   <-chan struct{} // see Identity; nil without one
}

// Connect makes the clients. It sends nothing.
func Connect(o Options) (*API, error) {
	a := &API{Health: newHealth(time.Now)}
	if o.Identity != nil {
		a.replaced = o.Identity.Replaced()
	}
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
	reviews, err := a.base(o)
	if err != nil {
		return nil, err
	}
	for _, client := range []struct {
		to   *kubernetes.Interface
		on   *rest.Config
		rate config.Rate
	}{
		{&a.Main, main, c.Main}, {&a.Statuses, main, c.Statuses}, {&a.Heartbeat, heartbeat, config.Rate{QPS: -1}},
		{&a.Events, events, eventRate}, {&a.TokenReviews, reviews, c.Main}, {&a.AccessReviews, reviews, c.Main},
	} {
		rc := rest.CopyConfig(client.on)
		rc.QPS, rc.Burst = float32(client.rate.QPS), client.rate.Burst
		if *client.to, err = kubernetes.NewForConfig(rc); err != nil {
			return nil, fmt.Errorf("make client of API server %s: %w", o.Base.Host, err)
		}
	}
	return a, nil
}

// Run replaces the connections each time the client certificate was replaced, until ctx ends.
func (a *API) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-a.replaced:
			a.ReplaceConnections()
		}
	}
}

// ReplaceConnections gives new connections to the requests that begin from now on, so that these use the newest client
// certificate, and closes the earlier ones. Requests under way fail, which does not affect Health.
func (a *API) ReplaceConnections() {
	earlier := make([]*connections, len(a.transports))
	for i, t := range a.transports {
		earlier[i] = t.replace()
	}
	a.Health.forget()
	for _, c := range earlier {
		c.close()
	}
}

// base returns a configuration with its own connection, which ReplaceConnections replaces unless it is a plugin's.
func (a *API) base(o Options) (*rest.Config, error) {
	rc := rest.CopyConfig(o.Base)
	rc.UserAgent = "berth/" + o.Version
	rc.ContentType = o.Cluster.ContentType
	if rc.ContentType == "application/vnd.kubernetes.protobuf" {
		rc.AcceptContentTypes = rc.ContentType + ",application/json" // for resources without protobuf
	}
	rc.WarningHandlerWithContext = warnings{o.Log}
	rc.Wrap(a.Health.observe)
	if rc.ExecProvider != nil || rc.AuthProvider != nil { // a plugin replaces its certificate and connections itself
		rc.Dial = dialer().DialContext // without one, client-go shares the plugin's connection among the clients
		return rc, nil
	}
	tlsConfig, err := rest.TLSConfigFor(rc)
	if err != nil {
		return nil, fmt.Errorf("read TLS settings of API server %s: %w", rc.Host, err)
	}
	if tlsConfig == nil { // only the machine's authorities are trusted
		tlsConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if o.Identity != nil {
		fixed := tlsConfig.GetClientCertificate
		tlsConfig.GetClientCertificate = func(r *tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if c := o.Identity.Certificate(); c != nil {
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
	// SetTransportDefaults turns on HTTP/2 with pings on a silent connection. They detect a server that has vanished
	// without closing the connection.
	t := newTransport(func(dial connrotation.DialFunc) *http.Transport {
		return utilnet.SetTransportDefaults(&http.Transport{
			Proxy: proxy, TLSHandshakeTimeout: 10 * time.Second, TLSClientConfig: tlsConfig.Clone(), DialContext: dial,
			DisableCompression:  rc.DisableCompression,
			MaxIdleConnsPerHost: 25,
		})
	})
	a.transports = append(a.transports, t)
	rc.Transport = t
	rc.TLSClientConfig = rest.TLSClientConfig{} // the transport has it
	rc.Proxy = nil
	return rc, nil
}

// warnings logs the warnings of the server.
type warnings struct{ log *slog.Logger }

func (w warnings) HandleWarningHeaderWithContext(ctx context.Context, code int, _ string, text string) {
	if code == 299 && text != "" {
		w.log.LogAttrs(ctx, slog.LevelDebug, "warning of the API server", slog.String("warning", text))
	}
}

// observe reports each request to Health.
func (h *Health) observe(rt http.RoundTripper) http.RoundTripper { return &observer{rt, h} }

type observer struct {
	http.RoundTripper
	health *Health
}

// WrappedRoundTripper gives client-go access to the transport below, to close idle connections.
func (o *observer) WrappedRoundTripper() http.RoundTripper { return o.RoundTripper }

func (o *observer) RoundTrip(r *http.Request) (*http.Response, error) {
	began := o.health.now()
	response, err := o.RoundTripper.RoundTrip(r)
	if errors.Is(r.Context().Err(), context.Canceled) {
		return response, err // the caller has cancelled the request
	}
	out := outcome{Began: began, Ended: o.health.now(), Err: err}
	if err == nil && unavailable(response.StatusCode) {
		out.Err = fmt.Errorf("API server: %s", response.Status)
	}
	o.health.note(out)
	if err == nil {
		response.Body = &observedBody{response.Body, r, o.health, out.Ended}
	}
	return response, err
}

// observedBody reports a response whose body is still incomplete at the deadline of its request. A server that hangs
// may have sent the header before. A watch has no deadline: its end does not say that the server is away.
type observedBody struct {
	io.ReadCloser
	request  *http.Request
	health   *Health
	progress time.Time // when data arrived last
}

func (b *observedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	now := b.health.now()
	if err != nil && !errors.Is(err, io.EOF) && errors.Is(b.request.Context().Err(), context.DeadlineExceeded) {
		b.health.note(outcome{Began: b.progress, Ended: now, Err: fmt.Errorf("read response: %w", err)})
	}
	if n > 0 {
		b.progress = now
	}
	return n, err
}
