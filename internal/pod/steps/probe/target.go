package probe

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/plan"
	"github.com/berth-run/berth/internal/record/timeline"
)

// probed is a pod that has at least one container with probes.
type probed struct {
	uid      types.UID
	pod      *pod.Pod
	observed *pod.Observed // the observed state that targets was made from
	starting []string      // the containers whose start is incomplete
	stopping bool
	targets  map[string]*target // by container id
}

// pods are the pods with probes.
type pods map[types.UID]*probed

// targets returns the running containers of a pod by container id.
func (p pods) targets(uid types.UID) map[string]*target {
	if e := p[uid]; e != nil {
		return e.targets
	}
	return nil
}

// target is a running container.
type target struct {
	pod       *probed
	id        string
	container pod.Container
	ip        string
	since     time.Time // when it began to run
	at        time.Time // when it had started; zero before
	jobs      [kinds]*job
}

// job is one probe of a target. Probes.mu guards its fields. A running check uses its own copy.
type job struct {
	target   *target
	kind     Kind
	probe    *corev1.Probe
	settings settings
	state    State
	place    int // in the queue; -1 if it is not in the queue
	cancel   context.CancelFunc
	pending  *State // is being written, and then becomes state; nil: none
	waited   func() // ends the wait for the first success in the pod's timeline; nil: none
}

func (t *target) verdict(k Kind) plan.Verdict {
	if j := t.jobs[k]; j != nil {
		return j.state.Verdict
	}
	return plan.Unknown
}

func (t *target) started() bool {
	return t.jobs[Startup] == nil || t.jobs[Startup].state.Verdict == plan.Success
}

// sync updates the targets of a pod from its running containers. Every pass over the pod calls it. Most calls change
// nothing.
func (p *Probes) sync(ctx context.Context, desired *pod.Pod, o *pod.Observed, stopping bool) {
	if p.retarget(ctx, desired, o, stopping) {
		p.write()
	}
}

// retarget does the part of sync in memory. It reports whether it changed anything.
func (p *Probes) retarget(ctx context.Context, desired *pod.Pod, o *pod.Observed, stopping bool) bool {
	starting := incomplete(p.opts.Containers, desired)
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.pods[desired.UID]
	if e == nil {
		if !hasProbes(desired.Pod) {
			return false
		}
		e = &probed{uid: desired.UID, targets: map[string]*target{}}
		p.pods[desired.UID] = e
	} else if e.pod == desired && e.observed == o && slices.Equal(e.starting, starting) && e.stopping == stopping {
		return false
	}
	e.pod, e.observed, e.starting, e.stopping = desired, o, starting, stopping
	ip := p.opts.address(desired.Pod, o)
	runs := map[string]bool{}
	for _, c := range pod.Containers(desired.Pod) {
		s, ok := o.Container(c.Name)
		if !ok || s.State != pod.StateRunning || !isProbed(c) || slices.Contains(starting, c.Name) {
			continue
		}
		runs[s.ID] = true
		t := e.targets[s.ID]
		if t == nil {
			t = &target{pod: e, id: s.ID, since: anchored(s.StartedAt, p.opts.Now())}
			e.targets[s.ID] = t
		}
		t.container, t.ip = c, ip
		p.arm(ctx, t)
	}
	for id := range e.targets {
		if !runs[id] {
			p.drop(e, id)
		}
	}
	p.release(e)
	return true
}

// incomplete returns the containers of a pod whose start is incomplete.
func incomplete(starts containers, desired *pod.Pod) (names []string) {
	if starts == nil {
		return nil
	}
	for _, c := range pod.Containers(desired.Pod) {
		if isProbed(c) && starts.Starting(desired.UID, c.Name) {
			names = append(names, c.Name)
		}
	}
	return names
}

// isProbed reports whether Kubernetes probes a container: not ephemeral containers, and not init containers other than
// sidecars.
func isProbed(c pod.Container) bool {
	if c.Kind != pod.App && c.Kind != pod.Sidecar {
		return false
	}
	return c.StartupProbe != nil || c.ReadinessProbe != nil || c.LivenessProbe != nil
}

// arm gives a target the jobs of its spec, and queues those that may run. A stopping pod keeps only its readiness
// probes.
func (p *Probes) arm(ctx context.Context, t *target) {
	for k := range Kind(kinds) {
		spec, j := k.of(t.container.Container), t.jobs[k]
		switch {
		case spec == nil || t.pod.stopping && k == Liveness:
			if j != nil {
				p.end(j)
				t.jobs[k] = nil
			}
		case j == nil:
			t.jobs[k] = p.newJob(ctx, t, k, spec)
		default:
			j.probe, j.settings = spec, settingsOf(spec)
		}
	}
	if j := t.jobs[Startup]; j != nil && t.pod.stopping && !j.state.OnHold {
		p.end(j)
		j.state.OnHold = true
	}
	p.enqueue(t)
}

// newJob makes a job with the state that an earlier agent left, or with a fresh one.
func (p *Probes) newJob(ctx context.Context, t *target, k Kind, spec *corev1.Probe) *job {
	j := &job{target: t, kind: k, probe: spec, settings: settingsOf(spec), place: -1}
	now := p.opts.Now()
	if saved, ok := p.saved[t.pod.uid].take(t.id, k); ok { // from here on the job keeps it
		j.state = saved
		if !saved.Due.IsZero() {
			j.state.Due = resumed(saved.Due, j.settings, now)
		}
	} else {
		j.state.Verdict = k.initial()
		if t.since.Before(p.began) {
			j.adopt(p, now)
		}
		p.touch(t.pod.uid)
	}
	if k != Liveness && j.state.Verdict != plan.Success && !t.pod.stopping {
		j.waited = timeline.Wait(ctx, k.lower()+" probe "+t.container.Name)
	}
	return j
}

// adopt sets the state of a probe whose container ran before this agent and has no state on disk. The last reported
// status stays valid. The first probe runs at a random time within a period, because many probes may start at once. It
// does not run before the initial delay is over.
func (j *job) adopt(p *Probes, now time.Time) {
	due := now.Add(time.Duration(p.opts.Rand() * float64(j.settings.period)))
	j.state.Due = later(due, j.target.since.Add(j.settings.delay))
	if p.opts.Before == nil {
		return
	}
	reported, ok := p.opts.Before.Ready(j.target.pod.uid, j.target.id)
	switch {
	case !ok:
	case j.kind == Startup && reported.Started:
		j.state.Verdict, j.state.OnHold = plan.Success, true
	case j.kind == Readiness && reported.Ready:
		j.state.Verdict = plan.Success
	}
}

// enqueue queues the jobs of a target that may run. Readiness and liveness probes wait until the container has started.
func (p *Probes) enqueue(t *target) {
	if t.started() && t.at.IsZero() {
		t.at = t.since
	}
	for _, j := range t.jobs {
		if j == nil || j.place >= 0 || j.cancel != nil || j.state.OnHold || j.kind != Startup && !t.started() {
			continue
		}
		if j.state.Due.IsZero() {
			j.state.Due = firstDue(j.kind, j.settings, t.since, t.at)
		}
		p.queue.put(j)
		if j.place == 0 {
			p.wake.Wake()
		}
	}
}

// end removes a job from the queue and cancels its check.
func (p *Probes) end(j *job) {
	p.queue.remove(j)
	if j.cancel != nil {
		j.cancel()
	}
	j.settle()
	p.touch(j.target.pod.uid)
}

// settle ends the job's wait in the timeline.
func (j *job) settle() {
	if j.waited != nil {
		j.waited()
		j.waited = nil
	}
}

// drop removes a container that does not run any more.
func (p *Probes) drop(e *probed, id string) {
	for _, j := range e.targets[id].jobs {
		if j != nil {
			p.end(j)
		}
	}
	delete(e.targets, id)
}

// release removes a stopping pod that has nothing left to probe.
func (p *Probes) release(e *probed) {
	if len(e.targets) == 0 && p.pods[e.uid] == e && (e.stopping || !hasProbes(e.pod.Pod)) {
		delete(p.pods, e.uid)
		p.metrics.forget(e.pod.Pod)
	}
}

func hasProbes(p *corev1.Pod) bool {
	for _, c := range pod.Containers(p) {
		if isProbed(c) {
			return true
		}
	}
	return false
}
