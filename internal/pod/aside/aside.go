package aside

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/guard"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/record/crash"
	"github.com/berth-run/berth/internal/record/event"
)

// PodSetAside is the reason of the event and of the condition of a pod that is set aside.
const PodSetAside = "PodSetAside"

// Options of a Register. All are required.
type Options struct {
	Events event.Sink
	Now    func() time.Time
	Log    *slog.Logger
}

// Register is the set of pods that are set aside. Its methods may be called from any goroutine.
type Register struct {
	opts   Options
	panics *prometheus.CounterVec

	mu   sync.Mutex
	pods map[types.UID]*entry
}

// entry holds the panics of one pod.
type entry struct {
	panics  int
	last    time.Time
	until   time.Time
	message string // of the condition
	active  bool   // false: the pod has recovered, and the entry only counts
}

// New returns an empty Register.
func New(o Options) *Register {
	return &Register{opts: o, pods: map[types.UID]*entry{},
		panics: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berth_pod_panics_total",
			Help: "Panics in the work on one pod, each of which set the pod aside, by the part that panicked.",
		}, []string{"part"})}
}

// Register registers the metrics. Call it once.
func (r *Register) Register(reg prometheus.Registerer) error {
	if err := reg.Register(r.panics); err != nil {
		return fmt.Errorf("register metrics of pods that are set aside: %w", err)
	}
	if err := reg.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "berth_pods_set_aside", Help: "Pods that are set aside now, after a panic in the work on them.",
	}, r.count)); err != nil {
		return fmt.Errorf("register metrics of pods that are set aside: %w", err)
	}
	return nil
}

func (r *Register) count() (n float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.pods {
		if e.active {
			n++
		}
	}
	return n
}

// Panicked sets a pod aside after a panic in the work on it, and returns when the next try may begin. part is the part
// of the work, such as "step/volume". The event and the log have the place of the panic, the log has the whole stack.
func (r *Register) Panicked(p *corev1.Pod, part string, e *guard.Panic) time.Time {
	r.panics.WithLabelValues(kind(part)).Inc()
	now := r.opts.Now()
	r.mu.Lock()
	known := r.pods[p.UID]
	if known == nil {
		known = &entry{}
		r.pods[p.UID] = known
	}
	panics, until := after(known.panics, known.last, now)
	*known = entry{panics: panics, last: now, until: until, active: true, message: fmt.Sprintf("%s: %v", part, e)}
	r.mu.Unlock()
	r.opts.Log.Error("panic in the work on a pod, the pod is set aside", "pod", pod.FullName(p), "uid", p.UID,
		"part", part, "panic", e.Value, "panics", panics, "retry", until.Sub(now), "stack", e.Stack)
	r.opts.Events.Event(event.PodRef(p), corev1.EventTypeWarning, PodSetAside,
		"%s: %v; the agent leaves the pod alone and tries again in %v. Its log has the stack", part, e, until.Sub(now))
	return until
}

// kind is the part of a panic without the name of a container, so that the metric has few series.
func kind(part string) string {
	task, _, _ := strings.Cut(part, "/")
	if task == "container" || task == "probe" {
		return task
	}
	return part
}

// Load sets aside the pods that several earlier agents were working on when they panicked.
func (r *Register) Load(reports []crash.Report) {
	now := r.opts.Now()
	for _, s := range suspects(reports, now) {
		message := fmt.Sprintf("work on this pod has ended %d agents with a panic, the last at %s: %s", s.crashes,
			s.last.Time.UTC().Format(time.RFC3339), s.last.Cause)
		r.mu.Lock()
		r.pods[s.subject.UID] = &entry{panics: s.crashes, last: s.last.Time, until: s.until, active: true,
			message: message}
		r.mu.Unlock()
		r.opts.Log.Error("pod set aside at the start", "pod", s.subject.Name, "uid", s.subject.UID, "crashes",
			s.crashes, "retry", s.until.Sub(now), "report", s.last.File)
		r.opts.Events.Event(s.subject.Ref(), corev1.EventTypeWarning, PodSetAside,
			"%s; the agent leaves the pod alone and tries again in %v", message, s.until.Sub(now).Round(time.Second))
	}
}

// Until returns when the next try of a pod may begin; zero for a pod that is not set aside.
func (r *Register) Until(uid types.UID) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.pods[uid]; e != nil && e.active {
		return e.until
	}
	return time.Time{}
}

// Condition returns the condition of a pod that is set aside. ok is false for other pods.
func (r *Register) Condition(uid types.UID) (c corev1.PodCondition, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.pods[uid]
	if e == nil || !e.active {
		return c, false
	}
	return corev1.PodCondition{Type: pod.ConditionSetAside, Status: corev1.ConditionTrue, Reason: PodSetAside,
		Message: e.message}, true
}

// Recovered says that a pod is no longer set aside. It keeps the count of panics for the next delay.
func (r *Register) Recovered(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.pods[uid]; e != nil {
		e.active = false
	}
}

// Forget drops a pod that is gone.
func (r *Register) Forget(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pods, uid)
}
