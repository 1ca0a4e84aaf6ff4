package probe

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/checkpoint"
	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/plan"
	"github.com/berth-run/berth/internal/record/event"
)

// execer runs a command in a container.
type execer interface {
	ExecSync(context.Context, *runtimeapi.ExecSyncRequest, ...grpc.CallOption) (*runtimeapi.ExecSyncResponse, error)
}

// Options of Probes. CRI, Events, Observed and Log are required.
type Options struct {
	CRI    execer
	Events event.Sink
	// Observed returns the runtime's last known state of a pod. It is called before and after each probe: a container
	// that does not run is not judged.
	Observed func(types.UID) *pod.Observed
	// PodIP returns the address for probes that name no host. nil means the first address of the pod's sandbox, which
	// pods on the host network do not have.
	PodIP func(*corev1.Pod, *pod.Observed) string
	// Starting reports whether the start of a running container is incomplete. It is not probed before its postStart
	// handler has returned. nil means never.
	Starting func(uid types.UID, container string) bool
	// Before returns the last reported status of a container id that ran before this agent started and has no file in
	// Dir. nil means that nothing was reported.
	Before func(uid types.UID, containerID string) (Ready, bool)
	// Changed is called after a verdict of a pod has changed, from a goroutine of its own and without holding a lock.
	// It may be nil.
	Changed func(types.UID)
	// Dir keeps the verdicts across a restart. Empty means in memory only.
	Dir string
	// Concurrency limits how many exec probes start at the same time. Default 8. A slow probe gives up its place after
	// a while, so that it delays no other.
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
	http    *http.Transport
	slots   chan struct{} // one in use by each exec probe that starts
	metrics *metrics
	files   *checkpoint.Dir[record] // one file per pod; nil: in memory only
	wake    wake.Signal             // raised when the queue has a new head
	retry   wake.Signal             // raised when a file could not be written

	disk    sync.Mutex // held while files are written; taken before mu
	mu      sync.Mutex
	queue   queue
	pods    map[types.UID]*probed
	saved   map[types.UID]record // from the last agent, for pods that are not set up yet
	stale   map[types.UID]bool   // whose files are out of date
	failing bool                 // the last write of a file failed
}

// New returns Probes that probe nothing before Run. The error names a missing required option, or a metric that is
// registered already.
func New(o Options) (*Probes, error) {
	if o.CRI == nil || o.Events == nil || o.Observed == nil || o.Log == nil {
		return nil, errors.New("probes: CRI, Events, Observed and Log are required")
	}
	if o.Concurrency <= 0 {
		o.Concurrency = 8
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Rand == nil {
		o.Rand = rand.Float64
	}
	if o.PodIP == nil {
		o.PodIP = sandboxIP
	}
	m, err := newMetrics(o.Metrics)
	if err != nil {
		return nil, err
	}
	p := &Probes{
		opts: o, began: o.Now(), http: newTransport(), slots: make(chan struct{}, o.Concurrency), metrics: m,
		wake: wake.New(), retry: wake.New(), pods: map[types.UID]*probed{},
		saved: map[types.UID]record{}, stale: map[types.UID]bool{},
	}
	if o.Dir != "" {
		p.files = checkpoint.NewDir[record](o.Dir, recordFormat)
	}
	return p, nil
}

func sandboxIP(_ *corev1.Pod, o *pod.Observed) string {
	if s, ok := o.Sandbox(); ok && len(s.IPs) > 0 {
		return s.IPs[0]
	}
	return ""
}

// Plan returns the verdicts that the plan needs, by container id. It omits containers without a startup or liveness
// probe.
func (p *Probes) Plan(uid types.UID) map[string]plan.Probes {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all map[string]plan.Probes
	for id, t := range p.targets(uid) {
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
	for id, t := range p.targets(uid) {
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

func (p *Probes) targets(uid types.UID) map[string]*target {
	if e := p.pods[uid]; e != nil {
		return e.targets
	}
	return nil
}
