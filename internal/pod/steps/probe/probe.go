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

// Options of Probes. CRI, Events, Observed, Expand and Log are required.
type Options struct {
	CRI    execer
	Events event.Sink
	// Observed is the runtime's last known state of a pod. It is asked before
	// and after each probe: a container that does not run is not judged.
	Observed func(types.UID) *pod.Observed
	// PodIP is the address that probes use which name no host. nil: the first
	// one of the pod's sandbox, which pods on the host network have not.
	PodIP func(*corev1.Pod, *pod.Observed) string
	// Expand replaces $(NAME) in the command of an exec probe.
	Expand func(command []string, env []corev1.EnvVar) []string
	// Starting says that the start of a running container is not complete: it
	// is not probed before its postStart handler has returned. nil: never.
	Starting func(uid types.UID, container string) bool
	// Before tells what was last reported of a container id that ran before this
	// agent did and is not in Dir. nil: nothing was.
	Before func(uid types.UID, containerID string) (Ready, bool)
	// Changed is called when a verdict of a pod has changed, from a goroutine of
	// its own and without a lock. nil: nobody is told.
	Changed func(types.UID)
	// Dir keeps the verdicts over a restart. Empty: they are kept in memory only.
	Dir string
	// Concurrency bounds how many exec probes start at the same time; default 8.
	// One that takes long gives its place away and holds up nobody.
	Concurrency int
	// Metrics registers prober_probe_total and prober_probe_duration_seconds. nil: not at all.
	Metrics prometheus.Registerer
	Now     func() time.Time // default time.Now
	Rand    func() float64   // in [0, 1); default rand.Float64
	Log     *slog.Logger
}

// Ready is what a status shows of one container id.
type Ready struct {
	// Started: there is no startup probe, or it has succeeded.
	Started bool
	// Ready: it has started, and there is no readiness probe or it succeeds.
	Ready bool
}

// Probes holds the probes of all pods of a node. Its methods may be called from
// any goroutine.
type Probes struct {
	opts    Options
	began   time.Time // of this agent
	http    *http.Transport
	slots   chan struct{} // taken while an exec probe starts
	metrics *metrics
	files   *checkpoint.Dir[record] // one a pod; nil: nothing is kept
	wake    wake.Signal             // the queue has a new head
	retry   wake.Signal             // a file could not be written

	disk    sync.Mutex // held while files are written; taken before mu
	mu      sync.Mutex
	queue   queue
	pods    map[types.UID]*probed
	saved   map[types.UID]record // of the last agent, not asked for yet
	stale   map[types.UID]bool   // whose files are out of date
	failing bool                 // the last write of a file failed
}

// New allocates; nothing runs before Run. The error names a required option that
// is missing, or a metric that is registered already.
func New(o Options) (*Probes, error) {
	if o.CRI == nil || o.Events == nil || o.Observed == nil || o.Expand == nil || o.Log == nil {
		return nil, errors.New("probes: CRI, Events, Observed, Expand and Log are required")
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

// Plan gives the verdicts that a plan is made from, by container id. Containers
// without a startup or liveness probe are not in it.
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

// Ready gives what the status shows, by container id. Containers without probes
// are not in it.
func (p *Probes) Ready(uid types.UID) map[string]Ready {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all map[string]Ready
	saved := p.saved[uid] // holds until the pod is set up
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

// Forget drops what is known of a pod. It is not needed for one whose containers
// were seen to stop.
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
