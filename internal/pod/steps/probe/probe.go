package probe

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/guard"
	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/plan"
	"github.com/berth-run/berth/internal/record/event"
)

// execer runs a command in a container.
type execer interface {
	ExecSync(context.Context, *runtimeapi.ExecSyncRequest, ...grpc.CallOption) (*runtimeapi.ExecSyncResponse, error)
}

// observer has the runtime's last known state of pods.
type observer interface {
	// Observed returns the state of a pod. It is called before and after each probe: a container that does not run is
	// not judged.
	Observed(types.UID) *pod.Observed
}

// addresses has the addresses of the node.
type addresses interface {
	// HostIPs returns at most one address of each family, the primary one first.
	HostIPs() []string
}

// containers starts containers.
type containers interface {
	// Starting reports whether the start of a running container is incomplete. It is not probed before its postStart
	// handler has returned.
	Starting(uid types.UID, container string) bool
}

// before has the statuses that an earlier agent reported.
type before interface {
	// Ready returns the last reported status of a container id that ran before this agent started and has no file in
	// Options.Dir.
	Ready(uid types.UID, containerID string) (Ready, bool)
}

// statuses are computed again after a change.
type statuses interface {
	// MarkVerdict says that a verdict of a pod has changed. It is called from a goroutine of its own and without
	// holding a lock.
	MarkVerdict(types.UID)
}

// lifelines record the results of probes.
type lifelines interface {
	// Probed records a result. kind is the kubelet's word for the probe. It must not block.
	Probed(p *corev1.Pod, container, kind string, ok bool, at time.Time)
}

// asides are the pods that are set aside.
type asides interface {
	// Panicked sets a pod aside and returns when the next try may begin.
	Panicked(p *corev1.Pod, part string, e *guard.Panic) time.Time
}

// Options of Probes. CRI, Events, Observed and Log are required.
type Options struct {
	CRI      execer
	Events   event.Sink
	Observed observer
	// Addresses has the node's addresses. A probe that names no host goes to the first address of its pod (pod.IPs).
	// nil means that the node has none, and pods on the host network neither.
	Addresses addresses
	// Containers knows which starts are incomplete. nil means none.
	Containers containers
	// Before has the statuses that were reported before this agent started. nil means that nothing was reported.
	Before before
	// Statuses show the verdicts. It may be nil.
	Statuses statuses
	// Asides sets a pod aside whose probe has panicked.
	Asides asides
	// Lifelines records each result. It may be nil.
	Lifelines lifelines
	// Dir keeps the verdicts across a restart. Empty means in memory only.
	Dir string
	// Concurrency limits how many exec probes start at the same time. Default two for each CPU, and at least four. A
	// slow probe gives up its place after a while, so that it delays no other.
	Concurrency int
	// Metrics registers prober_probe_total and prober_probe_duration_seconds. It may be nil.
	Metrics prometheus.Registerer
	Now     func() time.Time // default time.Now
	Rand    func() float64   // in [0, 1); default rand.Float64
	Log     *slog.Logger
}

// Ready has the status fields of one container id.
type Ready struct {
	// Started is set if the container has no startup probe, or it has succeeded.
	Started bool
	// Ready is set if the container has started, and has no readiness probe or it succeeds.
	Ready bool
}

// Probes has the probes of all pods of a node. Its methods may be called from any goroutine.
type Probes struct {
	opts    Options
	began   time.Time // when this agent started
	asker   asker
	metrics *metrics
	files   *files      // nil: in memory only
	wake    wake.Signal // raised when the queue has a new head

	mu    sync.Mutex
	queue queue
	pods  pods
	saved map[types.UID]record // from the last agent, for pods that are not set up yet
	stale map[types.UID]bool   // whose files are out of date
}

// New returns Probes that probe nothing before Run. The error names a missing required option, or a metric that is
// registered already.
func New(o Options) (*Probes, error) {
	if o.CRI == nil || o.Events == nil || o.Observed == nil || o.Log == nil {
		return nil, errors.New("probes: CRI, Events, Observed and Log are required")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Rand == nil {
		o.Rand = rand.Float64
	}
	m, err := newMetrics(o.Metrics)
	if err != nil {
		return nil, err
	}
	p := &Probes{
		opts: o, began: o.Now(), metrics: m,
		asker: asker{cri: o.CRI, http: newTransport(), starts: newStarts(o.Concurrency)},
		wake:  wake.New(), pods: pods{}, saved: map[types.UID]record{}, stale: map[types.UID]bool{},
	}
	if o.Dir != "" {
		p.files = newFiles(o.Dir, o.Log)
	}
	return p, nil
}

// address returns the address for probes that name no host.
func (o Options) address(desired *corev1.Pod, seen *pod.Observed) string {
	var host []string
	if o.Addresses != nil {
		host = o.Addresses.HostIPs()
	}
	box, _ := seen.Sandbox()
	if ips := pod.IPs(desired, box.IPs, host); len(ips) > 0 {
		return ips[0]
	}
	return ""
}

// Plan returns the verdicts that the plan needs, by container id. It omits containers without a startup or liveness
// probe.
func (p *Probes) Plan(uid types.UID) map[string]plan.Probes {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all map[string]plan.Probes
	for id, t := range p.pods.targets(uid) {
		var v plan.Probes
		for _, j := range []*job{t.jobs[Liveness], t.jobs[Startup]} {
			if j != nil && j.state.Verdict == plan.Failure {
				v.Grace, v.Message = j.probe.TerminationGracePeriodSeconds, j.state.Message
			}
		}
		v.Startup, v.Liveness = t.verdict(Startup), t.verdict(Liveness)
		if t.jobs[Startup] == nil && t.jobs[Liveness] == nil {
			continue
		}
		if all == nil {
			all = map[string]plan.Probes{}
		}
		all[id] = v
	}
	return all
}

// Ready returns the status fields by container id. It omits containers without probes.
func (p *Probes) Ready(uid types.UID) map[string]Ready {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all map[string]Ready
	saved := p.saved[uid] // valid until the pod is set up
	for id := range saved {
		if all == nil {
			all = map[string]Ready{}
		}
		all[id] = saved.ready(id)
	}
	for id, t := range p.pods.targets(uid) {
		if all == nil {
			all = map[string]Ready{}
		}
		all[id] = Ready{
			Started: t.started(),
			Ready:   t.started() && (t.jobs[Readiness] == nil || t.verdict(Readiness) == plan.Success),
		}
	}
	return all
}

// Forget drops everything about a pod. A pod whose containers were seen to stop does not need it.
func (p *Probes) Forget(uid types.UID) {
	p.mu.Lock()
	if e := p.pods[uid]; e != nil {
		for id := range e.targets {
			p.drop(e, id)
		}
		p.release(e)
	}
	if _, kept := p.saved[uid]; kept {
		delete(p.saved, uid)
		p.touch(uid)
	}
	p.mu.Unlock()
	p.write()
}
