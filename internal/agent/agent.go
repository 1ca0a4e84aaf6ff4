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

	"github.com/berth-run/berth/internal/agent/engine"
	"github.com/berth-run/berth/internal/agent/engine/endpoint"
	"github.com/berth-run/berth/internal/agent/former"
	"github.com/berth-run/berth/internal/agent/foundation"
	"github.com/berth-run/berth/internal/agent/input"
	"github.com/berth-run/berth/internal/agent/packetfilter"
	"github.com/berth-run/berth/internal/agent/power"
	"github.com/berth-run/berth/internal/agent/serve"
	"github.com/berth-run/berth/internal/api/podresources"
	"github.com/berth-run/berth/internal/api/server"
	"github.com/berth-run/berth/internal/base/descriptors"
	"github.com/berth-run/berth/internal/base/heap"
	"github.com/berth-run/berth/internal/base/librarylog"
	"github.com/berth-run/berth/internal/base/lock"
	"github.com/berth-run/berth/internal/base/processors"
	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/cluster/join"
	"github.com/berth-run/berth/internal/cluster/nodeobject"
	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/config/recall"
	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/observed"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/node"
	"github.com/berth-run/berth/internal/node/condition"
	"github.com/berth-run/berth/internal/node/firewall"
	"github.com/berth-run/berth/internal/node/history"
	"github.com/berth-run/berth/internal/node/plugin"
	"github.com/berth-run/berth/internal/node/stats"
	"github.com/berth-run/berth/internal/pod/aside"
	"github.com/berth-run/berth/internal/pod/fleet"
	"github.com/berth-run/berth/internal/pod/gate"
	"github.com/berth-run/berth/internal/pod/pleg"
	"github.com/berth-run/berth/internal/pod/source"
	"github.com/berth-run/berth/internal/pod/source/takeover"
	"github.com/berth-run/berth/internal/pod/status"
	"github.com/berth-run/berth/internal/record/event"
	"github.com/berth-run/berth/internal/record/lifeline"
	"github.com/berth-run/berth/internal/record/timeline"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// Options of an Agent.
type Options struct {
	Config *config.Config
	// Runtimes makes the container runtime that the configuration asks for.
	Runtimes engine.Kinds
	// Flags are kept in the root directory, so that commands without an agent find its configuration.
	Flags config.Flags
	// Version of this binary, for traces and the status.
	Version string
	// Verbosity sets the level of detail of Log. It takes the numbers of klog's flag -v.
	Verbosity func(int)
	// Ready is closed when the local API is open. It may be nil.
	Ready chan<- struct{}
	Log   *slog.Logger
}

// Agent is the node agent. New allocates it, and Run runs it until its context ends.
type Agent struct {
	Options
	began   time.Time
	idle    idle
	metrics *prometheus.Registry

	records      records
	tables       tables
	demand       demand
	machine      machine
	steps        steps
	doors        doors
	housekeeping housekeeping
	without      without
}

// without lists the parts that Offline leaves out.
type without struct {
	// pods: the agent shows pods and runs none. It writes no identities of manifests, and reports no problem of them.
	pods bool
	// runtime is the error of all calls to the runtime, which is not started. nil: it is started.
	runtime error
}

// tables hold the state that several parts share. The tables that need no file or directory are made first.
type tables struct {
	fleet    *fleet.Fleet
	observed *observed.Table // the pods that the runtime shows
	record   *status.Record
	stale    *status.Stale
	statuses *status.Statuses
	asides   *aside.Register
	changed  *wake.Set[object.Key] // objects of the cluster
	node     *nodeobject.Latest
	counts   gate.Counts
	// conditions are the node's. Without a cluster only the local API shows them.
	conditions *condition.Table
}

// machine describes the machine that this agent runs on, and its container runtime.
type machine struct {
	facts    node.Facts // read when the agent started
	ips      *node.Addresses
	firewall *firewall.Firewall
	chains   *firewall.Chains // of a kubelet, for other programs
	engine   *engine.Engine
	monitor  *cri.Monitor
	pleg     *pleg.PLEG
	stats    *stats.Stats
}

// doors are the parts through which requests enter this node, other than the sources of pods.
type doors struct {
	gate      *gate.Gate
	server    *server.Server       // for commands on this machine
	resources *podresources.Server // for monitoring agents that ask which pod has which device
	remote    *serve.Node          // for the API server, kubectl and Prometheus
	power     *power.Machine       // for systemd-logind, when the machine shuts down
	pressure  evictions            // for the kernel, when the machine runs short of memory
	plugins   *plugin.Watcher      // for device plugins, and drivers of volumes and claims
}

// demand holds the parts that know the pods that this node should run.
type demand struct {
	sources *source.Sources
	// access leads to the cluster, if there is one. reports go to it.
	access  join.Access
	reports join.Reports
}

// records are the parts that record what happens on the node.
type records struct {
	events   *event.Recorder
	timeline *timeline.Recorder
	tracer   *sdktrace.TracerProvider
	// lifelines have the runs of containers and the results of probes, and history what the node used.
	lifelines *lifeline.Recorder
	history   *history.History
}

// idle has what saves memory and CPU time while the node is idle.
type idle struct {
	heap       *heap.Heap
	processors *processors.Processors
}

// Stir implements fleet.Idle.
func (i idle) Stir() {
	i.processors.Stir()
	i.heap.Stir()
}

// New returns an agent. It reads, opens and starts nothing: Run does.
func New(o Options) *Agent { return newAgent(o, without{}) }

func newAgent(o Options, w without) *Agent {
	c := o.Config
	a := &Agent{
		Options: o, without: w, idle: idle{heap.New(), processors.New()}, metrics: prometheus.NewRegistry(),
		tables: tables{
			fleet: fleet.New(time.Now, o.Log), observed: observed.New(), stale: status.NewStale(),
			changed: wake.NewSet[object.Key](), node: nodeobject.NewLatest(c.NodeName),
			conditions: condition.New(),
		},
		records: records{
			events: event.New(event.Options{Dir: filepath.Join(c.RootDir, "events"), Component: join.EventSource(c),
				Host: c.NodeName, Log: o.Log}),
			timeline: timeline.NewRecorder(timeline.RecorderOptions{Dir: filepath.Join(c.RootDir, "timelines"),
				Log: o.Log}),
			lifelines: lifeline.New(time.Now()),
			history: history.New(history.Options{Dir: filepath.Join(c.RootDir, "history"), Host: "/", Disk: c.RootDir,
				Log: o.Log}),
		},
	}
	a.tables.asides = aside.New(aside.Options{Events: a.records.events, Now: time.Now, Log: o.Log})
	a.tables.counts = gate.NewCounts(a.metrics)
	a.machine.firewall, a.machine.chains = packetfilter.Firewall(c, o.Log), packetfilter.Chains(c, o.Log)
	a.demand.sources = source.New(source.Options{
		NodeName: c.NodeName, Path: c.Sources.StaticPodPath, Keep: c.Sources.KeepMissing,
		Copies: filepath.Join(c.RootDir, "static"), Period: c.Sources.FileCheckFrequency,
		URL: c.Sources.StaticPodURL, URLHeader: c.Sources.StaticPodURLHeader, URLPeriod: c.Sources.HTTPCheckFrequency,
		Applied: filepath.Join(c.RootDir, "applied"), Identities: filepath.Join(c.RootDir, "identities.json"),
		Report: reports(a), Log: o.Log, Frozen: w.pods,
		Ignored: pod.Ignored(c.Disabled.Fields),
		Node:    a.tables.fleet, Running: takeover.Pods{Observed: a.tables.observed}, Cluster: c.Cluster != nil,
	})
	return a
}

// Run runs the agent until ctx ends or a part of the agent fails. Containers keep running after it. If a part does not
// end within endPatience, Run returns without it and without the open files of the process, and the caller must end the
// process.
func (a *Agent) Run(ctx context.Context) error {
	parts := &running{}
	return bounded(ctx, endPatience, func(ctx context.Context, cancel context.CancelFunc) error {
		return a.run(ctx, cancel, parts)
	}, func() {
		a.Log.Error("parts of the agent have not ended in time, ending without them", "patience", endPatience, "parts",
			parts.names(), "pods", a.node().Hanging())
		if err := descriptors.Release(time.Second); err != nil {
			a.Log.Error("cannot release open files", "err", err)
		}
	})
}

// run is Run without its bound. It calls cancel when a part has failed, so that the bound counts from then on.
func (a *Agent) run(ctx context.Context, cancel context.CancelFunc, parts *running) (err error) {
	a.began = time.Now()
	librarylog.Forward(a.Log)
	c := a.Config
	if err := os.MkdirAll(c.RootDir, 0o711); err != nil { // for the lock
		return fmt.Errorf("make root directory: %w", err)
	}
	release, err := lock.Turn(ctx, c.Lock.File, c.Lock.Yield, a.Log, cancel)
	if err != nil {
		return foundation.Ended(err)
	}
	defer func() { err = errors.Join(err, release()) }()
	unlock, err := lock.Root(ctx, c.RootDir)
	if err != nil {
		return foundation.Ended(err)
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if err := makeDirs(c); err != nil {
		return err
	}
	if err := recall.Save(c.RootDir, a.Flags); err != nil {
		a.Log.Warn("cannot keep the flags, commands without an agent use the defaults", "err", err)
	}
	// The foundation ends after all loops: they need the records until they end, and the runtime has to finish the
	// calls that they have started.
	base := foundation.New(context.WithoutCancel(ctx), cancel)
	defer func() {
		defer parts.begin("runtime and records")()
		err = errors.Join(err, base.Stop())
	}()
	base.Launch(a.records.events.Run)
	base.Launch(a.records.timeline.Run)
	if err := a.machine.firewall.Ensure(ctx); err != nil {
		a.Log.Error("cannot protect loopback addresses of this machine from pods, retrying", "err", err)
	}
	a.tables.asides.Open(filepath.Join(c.RootDir, "crashes"), c.NodeName)
	group, ctx := errgroup.WithContext(ctx)
	defer context.AfterFunc(ctx, cancel)()
	if err := a.build(ctx, base.Launch); err != nil {
		return foundation.Ended(err)
	}
	start(ctx, group, a.loops(), parts, a.Log)
	return foundation.Ended(group.Wait())
}

// makeDirs makes the directories that several parts use. A container with its own user namespace reaches its root file
// system through them, as a user that the host does not know. Others need the permission to pass (0711).
func makeDirs(c *config.Config) error {
	for _, dir := range []struct {
		path string
		mode os.FileMode
	}{{c.RootDir, 0o711}, {c.RunDir, 0o711}, {filepath.Join(c.RootDir, "pods"), 0o750},
		{filepath.Join(c.RootDir, "events"), 0o700}} {
		if err := os.MkdirAll(dir.path, dir.mode); err != nil {
			return fmt.Errorf("make directory: %w", err)
		}
	}
	return nil
}

// build makes the parts that need facts about the machine and the runtime. It uses launch to start the parts that must
// end last, such as the runtime.
func (a *Agent) build(ctx context.Context, launch func(func(context.Context) error)) error {
	var err error
	if a.machine.facts, err = node.Read(a.nodeConfig()); err != nil {
		return fmt.Errorf("look at the machine: %w", err)
	}
	a.machine.ips = node.Follow(a.nodeConfig(), a.machine.facts)
	membership, err := connect(a)
	if err != nil {
		return err
	}
	a.demand.access = membership.Access()
	var shutdown func(context.Context) error
	a.records.tracer, shutdown, err = timeline.Provider(ctx, timeline.ProviderOptions{
		Recorder: a.records.timeline, OTLP: otlp(a.Config), Version: a.Version, Host: a.Config.NodeName, Log: a.Log,
	})
	if err != nil {
		return fmt.Errorf("set up tracing: %w", err)
	}
	launch(func(ctx context.Context) error {
		<-ctx.Done()
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		if err := shutdown(last); err != nil {
			a.Log.Warn("cannot export the last spans, they are lost", "err", err)
		}
		return nil
	})
	choice, err := endpoint.Choose(ctx, a.Config, a.Log)
	if err != nil {
		return fmt.Errorf("start the container runtime: %w", err)
	}
	if a.without == (without{}) {
		o := former.Options{Config: a.Config, Runtimes: a.Runtimes, Log: a.Log}
		if err := former.Leave(ctx, o, choice.Name()); err != nil {
			a.Log.Error("pods may still run in another container runtime, trying again at the next start", "err", err)
		}
	}
	if a.machine.engine, err = engine.Start(ctx, launch, engine.Options{
		Config: a.Config, Choice: choice, Kinds: a.Runtimes, Classes: a.demand.access.Objects, Metrics: a.metrics,
		Tracer: a.records.tracer, Absent: a.without.runtime, Log: a.Log,
	}); err != nil {
		return fmt.Errorf("start the container runtime: %w", err)
	}
	monitoring := a.demand.access.Monitoring
	monitoring.Conditions = input.RuntimeStatus{Engine: a.machine.engine, Fleet: a.tables.fleet,
		Conditions: monitoring.Conditions}
	a.machine.monitor = cri.NewMonitor(a.machine.engine.Client, monitoring, a.Log)
	a.machine.pleg = pleg.New(pleg.Options{Runtime: a.machine.engine.Client.Runtime, Table: a.tables.observed,
		Now: time.Now, Log: a.Log})
	if err := a.buildSteps(); err != nil {
		return err
	}
	a.buildHousekeeping()
	a.demand.reports = newReports(a, membership)
	return a.buildFleet()
}
