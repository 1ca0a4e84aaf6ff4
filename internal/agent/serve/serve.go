package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/berth-run/berth/internal/api/auth"
	"github.com/berth-run/berth/internal/api/https"
	"github.com/berth-run/berth/internal/api/server"
	"github.com/berth-run/berth/internal/cluster/cert"
	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/node/stats"
	"github.com/berth-run/berth/internal/node/telemetry"
)

// Options of a Node. All are required but the clients and AddressesChanged.
type Options struct {
	Config *config.Config
	// Kubelet is the configuration in effect, as /configz shows it.
	Kubelet *kubeletconfig.KubeletConfiguration
	Version string
	Began   time.Time
	// Client requests the serving certificate. TokenReviews and AccessReviews ask the API server who may use this
	// server. All are nil without a cluster.
	Client, TokenReviews, AccessReviews kubernetes.Interface
	// ClientCertificate identifies the node to the API server. It is nil without a cluster.
	ClientCertificate *cert.Client
	// Node has the node's addresses. AddressesChanged receives a token after they have changed. It is nil if they never
	// change.
	Node             cert.Node
	AddressesChanged <-chan struct{}
	Pods             *server.Pods
	Settled          <-chan struct{}
	Streams          server.Streams
	Runtime          https.Runtime
	// Health is the state of the work on pods.
	Health https.Health
	// Verbosity sets the level of detail of the log. It takes the numbers of klog's flag -v.
	Verbosity func(int)
	Stats     *stats.Stats
	Metrics   *prometheus.Registry
	Log       *slog.Logger
}

// Node is the node's HTTPS server for the cluster.
type Node struct {
	certificate *cert.Serving
	access      *auth.Auth
	server      *https.Server
}

// New returns the server. It reads no files: Run does.
func New(o Options) (*Node, error) {
	c := o.Config.Server
	if !c.HTTPS.IsValid() && !c.ReadOnly.IsValid() && !c.Healthz.IsValid() {
		return &Node{}, nil
	}
	n := &Node{}
	if err := n.secure(o); err != nil {
		return nil, err
	}
	options := https.Options{
		Addresses: https.Addresses{HTTPS: spell(c.HTTPS), ReadOnly: spell(c.ReadOnly), Healthz: spell(c.Healthz)},
		Enabled: https.Enabled{
			DebuggingHandlers: c.Handlers.Debugging, SystemLogHandler: c.Handlers.SystemLog,
			SystemLogQuery:   c.Handlers.SystemLogQuery,
			ProfilingHandler: c.Handlers.Profiling, ContentionProfiling: c.Handlers.ContentionProfiling,
			DebugFlagHandler: c.Handlers.DebugFlags,
			Checkpoint:       !o.Config.Disabled.Checkpoint,
			WebSockets:       !o.Config.Disabled.Server.WebSockets,
			LogStreams:       !o.Config.Disabled.Server.LogStreams,
		},
		Dirs: https.Dirs{PodLogs: o.Config.Pods.LogsDir, Checkpoints: filepath.Join(o.Config.RootDir, "checkpoints")},
		About: https.About{
			Version: o.Version, Started: o.Began, Config: o.Kubelet, Flags: o.Config.CommandLine,
			SetVerbosity: o.Verbosity, Health: o.Health,
		},
		Pods: o.Pods, Settled: o.Settled, Streams: o.Streams, Runtime: o.Runtime, Stats: o.Stats,
		Metrics: https.Metrics{
			Agent: promhttp.HandlerFor(some{o.Metrics, func(name string) bool { return !ofProbes(name) }},
				promhttp.HandlerOpts{}),
			Probes: promhttp.HandlerFor(some{o.Metrics, func(name string) bool {
				return ofProbes(name) ||
					name == "process_start_time_seconds" // it shows that the counters have started again from zero
			}}, promhttp.HandlerOpts{}),
			CAdvisor: promhttp.HandlerFor(stats.Cadvisor{Stats: o.Stats}, promhttp.HandlerOpts{}),
			Resource: promhttp.HandlerFor(stats.Resource{Stats: o.Stats}, promhttp.HandlerOpts{}),
		},
		StreamIdle: c.IdleTimeout, Register: o.Metrics, Log: o.Log,
	}
	if n.certificate != nil {
		options.TLS, options.Access = n.certificate.TLSConfig(), n.access
	}
	var err error
	n.server, err = https.New(options)
	return n, err
}

// secure makes the certificate and the access rules, for a node with an HTTPS port.
func (n *Node) secure(o Options) error {
	c := o.Config.Server
	if !c.HTTPS.IsValid() {
		return nil
	}
	n.certificate = cert.NewServing(cert.ServingOptions{
		TLS: c.TLS, Once: o.Config.Disabled.Server.OwnPair, NodeName: o.Config.NodeName, Client: o.Client, Node: o.Node,
		AddressesChanged: o.AddressesChanged, Log: o.Log,
	})
	mode := auth.ModeWebhook
	if c.Auth.AlwaysAllow {
		mode = auth.ModeAlwaysAllow
	}
	var err error
	n.access, err = auth.New(auth.Options{
		Node: o.Config.NodeName, ClientCAFile: c.TLS.ClientCAFile, ClientCAOnce: o.Config.Disabled.Server.ClientCA,
		Anonymous: c.Auth.Anonymous,
		Tokens:    c.Auth.TokenReview && o.TokenReviews != nil, TokenTTL: c.Auth.TokenTTL,
		Mode: mode, AllowedTTL: c.Auth.AllowedTTL, DeniedTTL: c.Auth.DeniedTTL,
		TokenReviews: o.TokenReviews, AccessReviews: o.AccessReviews, Log: o.Log,
	})
	if err != nil {
		return fmt.Errorf("decide who may use the node's server: %w", err)
	}
	var client interface {
		Certificate() *tls.Certificate
		Failures() uint64
	}
	if o.ClientCertificate != nil {
		client = o.ClientCertificate
	}
	for _, c := range telemetry.Certificates(client, n.certificate, time.Now) {
		if err := o.Metrics.Register(c); err != nil {
			return fmt.Errorf("register metrics: %w", err)
		}
	}
	return nil
}

// Run serves until ctx ends.
func (n *Node) Run(ctx context.Context) error {
	if n.server == nil {
		return nil
	}
	group, ctx := errgroup.WithContext(ctx)
	if n.certificate != nil {
		if err := errors.Join(n.certificate.Load(), n.access.Load()); err != nil {
			return fmt.Errorf("serve the node's API: %w", err)
		}
		group.Go(func() error { return n.certificate.Run(ctx) })
	}
	group.Go(func() error { return n.server.Run(ctx) })
	return group.Wait()
}

func spell(a netip.AddrPort) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

// some gathers the metrics whose names pass a filter.
type some struct {
	prometheus.Gatherer
	name func(string) bool
}

// Gather implements prometheus.Gatherer.
func (s some) Gather() ([]*dto.MetricFamily, error) {
	all, err := s.Gatherer.Gather()
	return slices.DeleteFunc(all, func(f *dto.MetricFamily) bool { return !s.name(f.GetName()) }), err
}

// ofProbes reports whether a metric is served only at /metrics/probes. There are many of these, one for each probe of a
// container.
func ofProbes(name string) bool { return strings.HasPrefix(name, "prober_") }
