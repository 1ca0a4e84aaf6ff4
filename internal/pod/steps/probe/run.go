package probe

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/base/guard"
	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/plan"
	"github.com/berth-run/berth/internal/record/event"
)

// probeWarning is the reason of the event about a probe that succeeded with a warning, as Kubernetes spells it.
const probeWarning = "ProbeWarning"

// Run probes until ctx ends. Then it cancels running probes, writes the state, and returns ctx's error.
func (p *Probes) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { p.keep(ctx) })
	defer p.write()
	defer wg.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.wake.C():
		case <-timer.C:
		}
		for _, c := range p.due(ctx) {
			wg.Go(func() { c.run(p) })
		}
		if next, ok := p.next(); ok {
			timer.Reset(next)
		}
	}
}

// next returns the time until the head of the queue is due.
func (p *Probes) next() (time.Duration, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) == 0 {
		return 0, false
	}
	return max(0, p.queue[0].state.Due.Sub(p.opts.Now())), true
}

// check is one running probe, with a copy of everything it needs from its job.
type check struct {
	ctx       context.Context
	job       *job
	target    *target
	pod       *corev1.Pod
	container pod.Container
	ip        string
	spec      *corev1.Probe
	settings  settings
	due       time.Time
}

// due removes the jobs that are due from the queue and returns a check for each.
func (p *Probes) due(ctx context.Context) []check {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.opts.Now()
	var all []check
	for len(p.queue) > 0 && !p.queue[0].state.Due.After(now) {
		j := p.queue[0]
		p.queue.remove(j)
		j.state.Due = begun(j.state.Due, j.settings.period, now)
		t := j.target
		c := check{
			job: j, target: t, pod: t.pod.pod.Pod, container: t.container, ip: t.ip,
			spec: j.probe, settings: j.settings, due: j.state.Due,
		}
		c.ctx, j.cancel = context.WithCancel(ctx)
		all = append(all, c)
	}
	return all
}

// run executes the check. After a panic it sets the pod aside. The probe runs again when the pod is no longer set
// aside.
func (c check) run(p *Probes) {
	e := guard.Of(guard.Call(func() error { p.probe(c); return nil }))
	if e == nil {
		return
	}
	until := p.opts.Asides.Panicked(c.pod, "probe/"+c.container.Name, e)
	c.retryAt(p, until)
	if p.opts.Statuses != nil {
		p.opts.Statuses.MarkVerdict(c.pod.UID)
	}
}

// retryAt queues the job of a check that has panicked for another time.
func (c check) retryAt(p *Probes, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	j := c.job
	if c.ctx.Err() != nil || j.cancel == nil {
		return // the target is gone, or the job is queued already
	}
	j.cancel()
	j.cancel, j.pending, j.state.Due = nil, nil, at
	p.enqueue(c.target)
}

// probe executes one probe and applies its result.
func (p *Probes) probe(c check) {
	guard.Point("probe", c.pod.Namespace, c.pod.Name)
	if !p.runs(c) {
		p.gone(c)
		return
	}
	began, a := p.asker.inTurn(c, p.opts.Now)
	now := p.opts.Now()
	if c.ctx.Err() == nil && a.verdict() != plan.Success && !p.runs(c) {
		p.gone(c) // the container ended meanwhile, so the probe has not failed
		return
	}
	p.apply(c, a, began, now)
}

// inTurn executes the probe once a place is free. It returns when it began.
func (k *asker) inTurn(c check, now func() time.Time) (began time.Time, got answer) {
	if c.spec.Exec != nil {
		leave := k.starts.enter(c.ctx)
		// A command with a longer timeout has had the time to start: it hangs.
		defer func() { leave(got.late && c.settings.timeout <= holdMost) }()
	}
	began = now()
	return began, k.ask(c)
}

// runs reports whether the container of a check still runs.
func (p *Probes) runs(c check) bool {
	s, ok := p.opts.Observed.Observed(c.pod.UID).Container(c.container.Name)
	return ok && s.ID == c.target.id && s.State == pod.StateRunning
}

// gone drops the target of a check, because its container has ended.
func (p *Probes) gone(c check) {
	defer p.write()
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := c.target; t.pod.targets[t.id] == t {
		p.drop(t.pod, t.id)
		p.release(t.pod)
	}
}

// apply applies a result to state, metrics and events, and queues the job again. Everything that matters after a
// restart is on disk before any part can read it.
func (p *Probes) apply(c check, a answer, began, now time.Time) {
	result := a.verdict()
	bonus := result == plan.Failure && early(c.job.kind, c.settings, c.target.since, c.due)
	if bonus {
		result = plan.Unknown
	}
	next, changed, save := c.judge(p, result, a.output, now)
	if save {
		p.write()
	}
	if !p.accept(c, next, a, now.Sub(began), now) {
		p.write()
		return
	}
	if !bonus {
		c.report(p.opts.Events, a)
	}
	if p.opts.Lifelines != nil && result != plan.Unknown {
		p.opts.Lifelines.Probed(c.pod, c.container.Name, c.job.kind.String(), result == plan.Success, now)
	}
	if changed && p.opts.Statuses != nil {
		p.opts.Statuses.MarkVerdict(c.pod.UID)
	}
}

// judge returns the state after a result, and whether its verdict has changed. If the state has to be written first,
// judge returns save, and the next write contains the state.
func (c check) judge(p *Probes, result plan.Verdict, output string, now time.Time) (next State, changed, save bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	j := c.job
	next, changed = j.state.after(j.kind, c.settings, result, j.kind.String()+" probe failed: "+output, now)
	save = c.ctx.Err() == nil && (changed || !next.equivalent(j.state, c.settings.period))
	if save {
		j.pending = &next
		p.touch(c.pod.UID)
	}
	return next, changed, save
}

// accept makes next the state of a check's job and queues the job again. If the check was cancelled, it does nothing
// and returns false.
func (p *Probes) accept(c check, next State, a answer, took time.Duration, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	j := c.job
	interrupted := c.ctx.Err() != nil
	j.cancel()
	j.cancel, j.pending = nil, nil
	if interrupted {
		p.touch(c.pod.UID)
		return false
	}
	if next.Verdict == plan.Success && j.state.Verdict != plan.Success {
		j.settle()
		if j.kind == Startup {
			c.target.at = now
		}
	}
	if a.err == nil {
		p.metrics.count(c.pod, c.container.Name, j.kind, a.verdict(), took)
	}
	j.state = next
	p.enqueue(c.target)
	return true
}

// report records the event of any result except plain success.
func (c check) report(events event.Sink, a answer) {
	ref := event.ContainerRef(c.pod, c.container)
	switch {
	case a.err != nil:
		events.Event(ref, corev1.EventTypeWarning, reason.Unhealthy, "%s probe errored and resulted in %s state: %s",
			c.job.kind, a.result, a.err)
	case a.result == warning:
		events.Event(ref, corev1.EventTypeWarning, probeWarning, "%s probe warning: %s", c.job.kind, a.output)
	case a.result == failure:
		events.Event(ref, corev1.EventTypeWarning, reason.Unhealthy, "%s probe failed: %s", c.job.kind, a.output)
	}
}
