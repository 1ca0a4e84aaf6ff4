package join

import (
	"fmt"
	"sync/atomic"

	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/cluster/apiserver"
	"github.com/berth-run/berth/internal/cluster/cert"
	"github.com/berth-run/berth/internal/cluster/kubeapi"
	"github.com/berth-run/berth/internal/cluster/objects"
	"github.com/berth-run/berth/internal/cluster/podcert"
	"github.com/berth-run/berth/internal/cluster/token"
	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/node/plugin"
	"github.com/berth-run/berth/internal/node/telemetry"
	"github.com/berth-run/berth/internal/pod/fleet"
	"github.com/berth-run/berth/internal/pod/steps/container"
	"github.com/berth-run/berth/internal/pod/steps/volume"
	"github.com/berth-run/berth/internal/pod/steps/volume/csi/driver"
	"github.com/berth-run/berth/internal/pod/worker"
)

// cluster is the membership of a node of a cluster: the connection, and the parts that bring something from it.
type cluster struct {
	o           Options
	certificate *cert.Client
	api         *kubeapi.API
	pods        *apiserver.Watch
	objects     *objects.Cluster
	tokens      *token.Tokens
	accounts    *token.Puller
	// certificates of pods; nil unless the node requests any.
	certificates *podcert.Certificates
	drivers      *drivers
	record       *record
	// newAddresses is raised after the addresses of the Node object have changed.
	newAddresses wake.Signal
}

// connect makes the parts, each with the parts before it.
func connect(o Options) (*cluster, error) {
	cfg := o.Config
	certificate := cert.NewClient(cert.ClientOptions{
		Cluster: cfg.Cluster, NodeName: cfg.NodeName, Events: o.Events, Log: o.Log,
	})
	if err := telemetry.Client(o.Metrics); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	base, err := certificate.Load()
	if err != nil {
		return nil, fmt.Errorf("join the cluster: %w", err)
	}
	api, err := kubeapi.Connect(kubeapi.Options{
		Base: base, Cluster: cfg.Cluster, Version: o.Version, Identity: certificate, Log: o.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("join the cluster: %w", err)
	}
	news := news{pods: o.Changed, requests: wake.New(), sets: wake.New()}
	received := objects.New(objects.Config{
		Client: api.Main, Pods: o.Sources.Desired, Sink: o.Sources.Cluster.Objects(), Changed: news,
		Strategy: objects.Strategy(cfg.Cluster.Detection), Nodes: o.Latest.Nodes, NodeName: cfg.NodeName,
		Sync: cfg.Kubelet.SyncFrequency.Duration, OwnReferences: cfg.Disabled.OwnReferences,
		Certificates: cfg.Cluster.PodCertificates, Log: o.Log,
	})
	tokens := token.New(token.FromAPI(api.Main), o.Log)
	accounts := token.NewPuller(tokens, api.Main)
	var certificates *podcert.Certificates
	if cfg.Cluster.PodCertificates {
		certificates = podcert.New(podcert.Config{
			Client: api.Main, Requests: received, Accounts: accounts, Nodes: o.Latest.Nodes, NodeName: cfg.NodeName,
			Changed: o.Changed, RequestsChanged: news.requests, Events: o.Events, Log: o.Log,
		})
	}
	pods := apiserver.New(apiserver.Options{Client: api.Main, NodeName: cfg.NodeName, Sink: o.Sources.Cluster})
	standsIn := &atomic.Bool{}
	drivers, err := newDrivers(o, api, support{Cluster: received, tokens: tokens, rejecter: o.Rejecter}, news, standsIn)
	if err != nil {
		return nil, err
	}
	return &cluster{
		o: o, certificate: certificate, api: api, objects: received, tokens: tokens, accounts: accounts,
		pods:         pods,
		certificates: certificates, drivers: drivers, newAddresses: wake.New(),
		record: newRecord(o, server{sources: o.Sources, health: api.Health, objects: received,
			drivers: drivers.volumes.Drivers()}, tokens, news.sets, standsIn),
	}, nil
}

// news passes on changes of objects that the object table does not show.
type news struct {
	// pods collects the objects that pods wait for.
	pods *wake.Set[object.Key]
	// requests is raised when a request for a pod's certificate has changed, and sets when the services, trust bundles
	// or CSI drivers have. The saved pods have copies of these sets.
	requests, sets wake.Signal
}

// AddAll does not block.
func (n news) AddAll(keys map[object.Key]bool) {
	n.pods.AddAll(keys)
	if keys[object.CertificateRequests()] {
		n.requests.Wake()
	}
	for key := range keys {
		if key.Kind == object.Service || key.Kind == object.ClusterTrustBundle || key.Kind == driver.KindDriver {
			n.sets.Wake()
			return
		}
	}
}

// Access implements Membership.
func (c *cluster) Access() Access {
	issuer := token.Issuer{Tokens: c.tokens, Bundles: c.objects, NoBundles: c.o.Config.Disabled.TrustBundles}
	if c.certificates != nil {
		issuer.Certificates = c.certificates
	}
	volumes, claims := c.drivers.volumes, c.drivers.claims
	plugins := Plugins{
		Handlers: map[string]plugin.Handler{plugin.TypeCSI: volumes.Drivers(), plugin.TypeDRA: claims.Drivers()},
		Kinds:    []volume.Kind{volumes}, Steps: []worker.Step{claims.Step()},
		Lifecycle: []container.Lifecycle{{PreCreate: claims.PreCreate}}, Drivers: c.drivers,
	}
	if c.o.Config.Cluster.AttachDetach {
		plugins.Attachments = volumes.Attachments()
	}
	return Access{
		Client: c.api.Main, TokenReviews: c.api.TokenReviews, AccessReviews: c.api.AccessReviews,
		Certificate: c.certificate, AddressesChanged: c.newAddresses.C(),
		Objects:  object.Joined(c.o.Sources.Objects, c.objects.Received),
		Services: c.objects, Issuer: issuer, Accounts: c.accounts, Conditions: c.o.Conditions,
		Monitoring: cri.MonitorOptions{Period: runtimePeriod, Conditions: c.o.Conditions},
		Watchers:   []fleet.Watcher{c.record}, Plugins: plugins,
	}
}
