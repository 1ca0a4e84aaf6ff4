package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/agent/engine"
	"github.com/berth-run/berth/internal/agent/power"
	"github.com/berth-run/berth/internal/agent/serve"
	"github.com/berth-run/berth/internal/api/podresources"
	"github.com/berth-run/berth/internal/api/server"
	"github.com/berth-run/berth/internal/base/heap"
	"github.com/berth-run/berth/internal/base/lock"
	"github.com/berth-run/berth/internal/cluster/join"
	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/node"
	"github.com/berth-run/berth/internal/pod/fleet"
	"github.com/berth-run/berth/internal/pod/gate"
	"github.com/berth-run/berth/internal/pod/pleg"
	"github.com/berth-run/berth/internal/pod/source"
	"github.com/berth-run/berth/internal/pod/source/takeover"
	"github.com/berth-run/berth/internal/pod/status"
	"github.com/berth-run/berth/internal/pod/steps/container/render"
	"github.com/berth-run/berth/internal/record/event"
	"github.com/berth-run/berth/internal/record/timeline"

	"k8s.io/klog/v2"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// Options of an Agent.
type Options struct {
	Config *config.Config
	// Version of this binary, for traces and the status.
	Version string
	// Flags are those of the command line, by name, with what they were set to.
	Flags map[string]string
	// Verbosity changes the detail of Log as klog's -v does.
	Verbosity func(int)
	Log       *slog.Logger
}

// Agent is the node agent. New allocates it, Run is its life.
type Agent struct {
	Options
	began   time.Time
	ready   chan struct{}
	heap    *heap.Heap
	metrics *prometheus.Registry

	records
	demand

	machine
	engine   *engine.Engine
	monitor  *cri.Monitor
	pleg     *pleg.PLEG
	steps    steps
	record   *status.Record
	stale    *status.Stale
	statuses *status.Statuses
	fleet    *fleet.Fleet
	doors
	store imageStore
	housekeeping
}

// machine is what this agent runs on.
type machine struct {
	facts node.Facts // as it began
	ips   *node.Addresses
}

// doors are who asks something of this node that is not a source of pods.
type doors struct {
	gate      *gate.Gate
	server    *server.Server       // commands on this machine
	resources *podresources.Server // who looks after devices
	remote    *serve.Node          // the cluster
	power     *power.Machine       // the machine that goes down
}

// demand is what is wanted of this node.
type demand struct {
	sources *source.Sources
	cluster *join.Cluster // nil: standalone
	// objects are what pods name besides themselves.
	objects *object.Objects
}

// records are what is told of the node's work.
type records struct {
	events   *event.Recorder
	timeline *timeline.Recorder
	tracer   *sdktrace.TracerProvider
}

// New makes an agent. Nothing is read, opened or started before Run.
func New(o Options) *Agent {
	c := o.Config
	a := &Agent{
		Options: o, ready: make(chan struct{}), heap: heap.New(),
		stale:   status.NewStale(),
		metrics: prometheus.NewRegistry(),
		records: records{
			events: event.New(event.Options{Dir: filepath.Join(c.RootDir, "events"), Component: join.EventSource(c),
				Host: c.NodeName, Log: o.Log}),
			timeline: timeline.NewRecorder(timeline.RecorderOptions{Dir: filepath.Join(c.RootDir, "timelines"),
				Log: o.Log}),
		},
	}
	a.sources = source.New(source.Options{
		NodeName: c.NodeName, Path: c.Sources.StaticPodPath, Period: c.Sources.FileCheckFrequency,
		URL: c.Sources.StaticPodURL, URLHeader: c.Sources.StaticPodURLHeader, URLPeriod: c.Sources.HTTPCheckFrequency,
		Applied: filepath.Join(c.RootDir, "applied"), Identities: filepath.Join(c.RootDir, "identities.json"),
		Report: problems{a.events}, Log: o.Log,
		Admitted: func(uid types.UID) bool { return taken(a.fleet, uid) }, Cluster: c.Cluster != nil,
		Adopt: func(p *pod.Pod) (types.UID, bool) {
			return takeover.Find(p, render.Hashes(p.Pod), a.pleg.Table().Snapshot().All())
		}, Await: func(ctx context.Context) error { return a.pleg.Await(ctx) },
	})
	return a
}

// Ready is closed when the local API is open.
func (a *Agent) Ready() <-chan struct{} { return a.ready }

// Run is the agent's life: it ends with ctx, or with the first part that fails.
// Containers run on.
func (a *Agent) Run(ctx context.Context) (err error) {
	a.began = time.Now()
	klog.SetSlogLogger(a.Log.With("component", "client-go")) // which has one logger for the process
	c := a.Config
	// Containers with user namespaces of their own go through the run directory
	// to their roots, as users whom nobody knows.
	for _, dir := range []struct {
		path string
		mode os.FileMode
	}{{c.RootDir, 0o711}, {c.RunDir, 0o711}, {filepath.Join(c.RootDir, "pods"), 0o750}} {
		if err := os.MkdirAll(dir.path, dir.mode); err != nil {
			return fmt.Errorf("make directory: %w", err)
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	release, err := lock.Turn(ctx, c.Lock.File, c.Lock.Yield, cancel)
	if err != nil {
		return ended(err)
	}
	defer func() { err = errors.Join(err, release()) }()
	unlock, err := lock.Root(c.RootDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	// What others stand on outlives them: the records, and the runtime, which
	// still serves the calls that are under way.
	launch, stop := foundation(context.WithoutCancel(ctx))
	defer func() { err = errors.Join(err, stop()) }()
	launch(a.events.Run, cancel)
	launch(a.timeline.Run, cancel)
	group, ctx := errgroup.WithContext(ctx)
	if err := a.build(ctx, func(run func(context.Context) error) { launch(run, cancel) }); err != nil {
		return ended(err)
	}
	start(ctx, group, a.loops(), a.Log)
	return ended(group.Wait())
}

// foundation runs what is to end last. launch starts a part of it, and calls
// failed if that ends by itself; stop ends all of it and returns why a part
// failed.
func foundation(ctx context.Context) (launch func(run func(context.Context) error, failed func()), stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	group, ctx := errgroup.WithContext(ctx)
	launch = func(run func(context.Context) error, failed func()) {
		group.Go(func() error {
			defer failed()
			return run(ctx)
		})
	}
	return launch, func() error {
		cancel()
		return ended(group.Wait())
	}
}

// ended drops the error of a context that was meant to end.
func ended(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// build makes the parts that need to know the machine and the runtime. What
// they stand on is launched.
func (a *Agent) build(ctx context.Context, launch func(func(context.Context) error)) error {
	var err error
	if a.facts, err = node.Read(a.nodeConfig()); err != nil {
		return fmt.Errorf("look at the machine: %w", err)
	}
	a.ips = node.Follow(a.nodeConfig(), a.facts, func() { addressesChanged(a) })
	if err := connect(a); err != nil {
		return err
	}
	var shutdown func(context.Context) error
	a.tracer, shutdown, err = timeline.Provider(ctx, timeline.ProviderOptions{
		Recorder: a.timeline, OTLP: otlp(a.Config), Version: a.Version, Host: a.Config.NodeName, Log: a.Log,
	})
	if err != nil {
		return fmt.Errorf("set up tracing: %w", err)
	}
	launch(func(ctx context.Context) error {
		<-ctx.Done()
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		if err := shutdown(last); err != nil {
			a.Log.Warn("export the last spans", "err", err)
		}
		return nil
	})
	if a.engine, err = engine.Start(ctx, launch, engine.Options{
		Config: a.Config, Classes: a.objects, Metrics: a.metrics, Tracer: a.tracer, Log: a.Log,
	}); err != nil {
		return fmt.Errorf("start the container runtime: %w", err)
	}
	a.monitor = cri.NewMonitor(a.engine.Client, join.Monitoring(a.cluster), a.Log)
	a.pleg = pleg.New(pleg.Options{Runtime: a.engine.Client.Runtime, Now: time.Now, Log: a.Log})
	if a.steps.allocations, err = newAllocations(a); err != nil {
		return err
	}
	if err := a.buildSteps(); err != nil {
		return err
	}
	a.buildHousekeeping()
	return a.buildFleet()
}
