package pressure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/berth-run/berth/internal/base/cgroupfile"
	"github.com/berth-run/berth/internal/base/checkpoint"
	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/model/observed"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/node/condition"
	"github.com/berth-run/berth/internal/node/eviction"
	"github.com/berth-run/berth/internal/node/stats"
	"github.com/berth-run/berth/internal/pod/fleet"
	"github.com/berth-run/berth/internal/pod/steps/cgroup"
	"github.com/berth-run/berth/internal/pod/worker"
	"github.com/berth-run/berth/internal/record/event"
)

// saveRetry is the delay before the file is written again after a failure.
const saveRetry = 5 * time.Second

// Options of Pods. All are required.
type Options struct {
	// Path of the file with the victims.
	Path     string
	Fleet    *fleet.Fleet
	Observed *observed.Table
	Cgroups  cgroup.Containers
	Stops    Stops
	Roll     fleet.Roll
	// StaticCritical makes every static pod critical.
	StaticCritical bool
	Conditions     *condition.Table
	// Standalone: no Node object exists whose writer records the events of conditions.
	Standalone bool
	// Transition is evictionPressureTransitionPeriod.
	Transition time.Duration
	Node       corev1.ObjectReference
	Events     event.Sink
	Log        *slog.Logger
}

// Stops ends pods.
type Stops interface {
	// EvictFor ends a pod for the sake of the node.
	EvictFor(p *corev1.Pod, message string, annotations map[string]string, grace time.Duration)
	// Evict ends a pod that exceeds its limits. It returns false if the pod ends already.
	Evict(p *corev1.Pod, message string) bool
}

// victim is an evicted pod whose end is not complete, or that waits for the end of the pressure.
type victim struct {
	Stop      pod.Stop                 `json:"stop"`
	Condition corev1.NodeConditionType `json:"condition"`
	// returning: the agent starts the static pod again. It is not kept over a restart of the agent.
	returning bool
}

// victims is the content of the file.
type victims map[types.UID]victim

// Check implements checkpoint.Checker. A pod would end for no reason, or before it was asked to.
func (all victims) Check() error {
	for uid, v := range all {
		if v.Stop.Reason != pod.StopEvicted || v.Stop.Grace != nil && *v.Stop.Grace < 0 {
			return fmt.Errorf("pod %q is not one that was evicted", uid)
		}
	}
	return nil
}

// Pods are the pods of this node. It implements eviction.Pods, gate.Evictions and fleet.Watcher.
type Pods struct {
	Options
	changed wake.Signal // wakes the evictor
	news    wake.Signal // wakes Run: there is a victim, one may have ended, or the pressure

	mu      sync.Mutex
	victims map[types.UID]victim
	unsaved bool // the file is out of date
	// unlogged are evictions that the log does not have yet.
	unlogged []eviction.Victim
	// pressure says whether a condition holds. It has no entry before the first look.
	pressure map[corev1.NodeConditionType]bool
}

// New makes Pods without victims.
func New(o Options) *Pods {
	return &Pods{Options: o, changed: wake.New(), news: wake.New(), victims: map[types.UID]victim{},
		pressure: map[corev1.NodeConditionType]bool{}}
}

func format() checkpoint.Format { return checkpoint.Format{Version: 1} }

// Load reads the victims of an earlier agent.
func (p *Pods) Load() error {
	all, err := checkpoint.Load[victims](p.Path, format())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.Copy(p.victims, all)
	return err
}

// Changed implements eviction.Pods.
func (p *Pods) Changed() <-chan struct{} { return p.changed.C() }

// Evicting returns the stop of a pod whose eviction an earlier agent has begun, or nil.
func (p *Pods) Evicting(uid types.UID) *pod.Stop {
	p.mu.Lock()
	defer p.mu.Unlock()
	v, ok := p.victims[uid]
	if !ok || v.returning {
		return nil
	}
	return &v.Stop
}

// Reclaim implements eviction.Pods. Only pods use memory and processes.
func (p *Pods) Reclaim(context.Context, eviction.Crossing) (removed, soon bool) { return false, false }

// Candidates implements eviction.Pods.
func (p *Pods) Candidates(_ context.Context, s eviction.Signal) []eviction.Candidate {
	return p.candidates(s, func(of *corev1.Pod) (int64, bool) { return p.usage(of, s.Resource()) })
}

// candidates returns the pods that hold resources of the node, with their use.
func (p *Pods) candidates(s eviction.Signal, usage func(*corev1.Pod) (int64, bool)) (all []eviction.Candidate) {
	for _, o := range p.Fleet.Holders() {
		c := eviction.Candidate{Pod: o.Pod.Pod, Priority: pod.Priority(o.Pod.Pod),
			Critical: pod.Critical(o.Pod.Pod, p.StaticCritical)}
		requests := resourcehelper.PodRequests(o.Pod.Pod, resourcehelper.PodResourcesOptions{})
		c.Request, c.Storage = requests.Name(s.Resource(), "").Value(), requests.StorageEphemeral().Value()
		if o.Terminating {
			c.EndsBy = cmp.Or(o.EndsBy, time.Now())
		}
		c.Usage, c.Known = usage(o.Pod.Pod)
		all = append(all, c)
	}
	return all
}

// usage returns how much memory or how many processes a pod has. A pod without a cgroup has none.
func (p *Pods) usage(of *corev1.Pod, resource corev1.ResourceName) (used int64, known bool) {
	group, _, err := p.Cgroups.Pod(of)
	if err != nil {
		return 0, false
	}
	if resource == eviction.PIDs {
		used, err = stats.ProcessesOf(group)
		return used, err == nil
	}
	m, err := stats.MemoryOf(group)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, true
	}
	return m.WorkingSet, err == nil
}

// Usage implements eviction.Pods.
func (p *Pods) Usage(_ context.Context, of *corev1.Pod, s eviction.Signal) (used eviction.Usage) {
	if s.Resource() != corev1.ResourceMemory {
		return used
	}
	if total, known := p.usage(of, s.Resource()); known {
		used.Pod = &total
	}
	group, _, err := p.Cgroups.Pod(of)
	if err != nil {
		return used
	}
	for _, c := range p.Observed.Observed(of.UID).ContainersOf() {
		if c.State != pod.StateRunning {
			continue
		}
		child, ok := group.Child(c.ID)
		if !ok {
			continue
		}
		if m, err := stats.MemoryOf(child); err == nil {
			used.Containers = append(used.Containers, eviction.ContainerUsage{Name: c.Name, Bytes: m.WorkingSet})
		}
	}
	return used
}

// Evict implements eviction.Pods. It writes no file and no log, which a slow disk may delay: Run does, while the pod
// ends. The containers of a pod without a grace period are killed here, and not by the runtime, which may hang or wait
// for memory itself.
func (p *Pods) Evict(v eviction.Victim) {
	p.Stops.EvictFor(v.Pod, v.Message, v.Annotations, v.Grace)
	if v.Grace == 0 {
		p.kill(v.Pod)
	}
	p.mu.Lock()
	p.unlogged = append(p.unlogged, v)
	_, known := p.victims[v.Pod.UID]
	p.victims[v.Pod.UID] = victim{Condition: v.Condition, Stop: pod.Stop{Reason: pod.StopEvicted, Message: v.Message,
		Grace: &v.Grace, Exact: true, At: time.Now()}}
	p.unsaved = true
	p.mu.Unlock()
	p.news.Wake()
	if !known && pod.Static(v.Pod) {
		p.Events.Event(event.PodRef(v.Pod), corev1.EventTypeNormal, reason.WaitsForPressure,
			"its manifest is still there: the pod starts again when %s has ended, at the earliest in %s", v.Condition,
			p.Transition)
	}
}

// kill kills the running containers of a pod. The worker of the pod stops them through the runtime at the same time,
// also those that this look misses.
func (p *Pods) kill(of *corev1.Pod) {
	group, _, err := p.Cgroups.Pod(of)
	if err != nil {
		return
	}
	for _, c := range p.Observed.Observed(of.UID).ContainersOf() {
		child, ok := group.Child(c.ID)
		if c.State != pod.StateRunning || !ok {
			continue
		}
		if err := cgroupfile.Kill(child); err != nil {
			p.Log.Warn("cannot kill a container of an evicted pod, leaving it to the runtime", "pod", pod.FullName(of),
				"container", c.Name, "err", err)
		}
	}
}

// SetPressure implements eviction.Pods.
func (p *Pods) SetPressure(hold []corev1.NodeConditionType) {
	p.report([]corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodePIDPressure}, hold)
}

// report stores which of some conditions hold, and wakes the parts that wait for their end.
func (p *Pods) report(some, hold []corev1.NodeConditionType) {
	p.mu.Lock()
	same := true
	for _, c := range some {
		holds := slices.Contains(hold, c)
		was, known := p.pressure[c]
		same = same && known && was == holds
		p.pressure[c] = holds
	}
	p.mu.Unlock()
	if same {
		return
	}
	before := p.Conditions.Pressures()
	p.Conditions.SetPressure(some, hold)
	if p.Standalone {
		for _, why := range condition.Events(before, p.Conditions.Pressures()) {
			p.Events.Event(p.Node, corev1.EventTypeNormal, why, "Node %s status is now: %s", p.Node.Name, why)
		}
	}
	p.Fleet.Reconsider() // pods may wait for the end of the pressure
	p.news.Wake()
}

// PodChanged implements fleet.Watcher.
func (p *Pods) PodChanged(uid types.UID) {
	p.mu.Lock()
	_, ours := p.victims[uid]
	p.mu.Unlock()
	p.changed.Wake()
	if ours {
		p.news.Wake()
	}
}

// Run logs evictions, remembers victims on disk, and starts static pods again once the pressure has ended.
func (p *Pods) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-p.Fleet.Settled():
	}
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-again.C:
		case <-p.news.C():
		}
		p.settle()
		p.logEvictions()
		if err := p.save(); err != nil {
			p.Log.Error("cannot write down which pods are evicted, retrying", "err", err, "retry", saveRetry)
			again.Reset(saveRetry)
		}
	}
}

// logEvictions logs the evictions since its last call.
func (p *Pods) logEvictions() {
	p.mu.Lock()
	all := p.unlogged
	p.unlogged = nil
	p.mu.Unlock()
	for _, v := range all {
		p.Log.Warn("pod evicted", "pod", pod.FullName(v.Pod), "condition", v.Condition, "grace", v.Grace, "cause",
			v.Message)
	}
}

// save writes the victims to disk if the file is out of date.
func (p *Pods) save() error {
	p.mu.Lock()
	all, unsaved := maps.Clone(p.victims), p.unsaved
	p.unsaved = false
	p.mu.Unlock()
	if !unsaved {
		return nil
	}
	err := checkpoint.Save(p.Path, format(), all)
	if err != nil {
		p.mu.Lock()
		p.unsaved = true
		p.mu.Unlock()
	}
	return err
}

// settle forgets victims that have ended, and starts static pods again.
func (p *Pods) settle() {
	p.mu.Lock()
	all, pressure := maps.Clone(p.victims), maps.Clone(p.pressure)
	p.mu.Unlock()
	for uid, v := range all {
		m, here := p.Fleet.Member(uid)
		over := here && m.State.Stage == worker.Terminated
		switch {
		case !here && !p.Roll.Known(uid), over && !pod.Static(m.Pod.Pod), !over && v.returning:
			p.forget(uid)
		case over && !v.returning && ended(pressure, v.Condition):
			p.Log.Info("starting an evicted static pod again", "pod", pod.FullName(m.Pod.Pod), "ended", v.Condition)
			v.returning = true
			p.put(uid, v)
			stop := v.Stop
			stop.Remove = true
			p.Fleet.Stop(uid, stop)
		}
	}
}

// ended reports whether a condition is known not to hold.
func ended(pressure map[corev1.NodeConditionType]bool, c corev1.NodeConditionType) bool {
	holds, known := pressure[c]
	return known && !holds
}

func (p *Pods) put(uid types.UID, v victim) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.victims[uid] = v
}

func (p *Pods) forget(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.victims, uid)
	p.unsaved = true
}
