package probe

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/plan"
	"github.com/berth-run/berth/internal/record/event"
)

// Reasons of the events, as Kubernetes spells them.
const (
	unhealthy    = "Unhealthy"
	probeWarning = "ProbeWarning"
)

// Run probes until ctx ends. Then it interrupts what is under way, keeps the
// state, and returns ctx's error.
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
			wg.Go(func() { p.probe(c) })
		}
		if next, ok := p.next(); ok {
			timer.Reset(next)
		}
	}
}

// next is the time until the head of the queue is due.
func (p *Probes) next() (time.Duration, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) == 0 {
		return 0, false
	}
	return max(0, p.queue[0].state.Due.Sub(p.opts.Now())), true
}

// check is one probe under way: what it needs of its job, taken when it began.
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

// due takes the jobs that are due out of the queue.
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

// probe carries out one probe and takes its result in.
func (p *Probes) probe(c check) {
	if !p.runs(c) {
		p.gone(c)
		return
	}
	release := p.slot(c)
	began := p.opts.Now()
	a := p.ask(c)
	release()
	now := p.opts.Now()
	if c.ctx.Err() == nil && a.verdict() != plan.Success && !p.runs(c) {
		p.gone(c) // it ended meanwhile: that is no failed probe
		return
	}
	p.take(c, a, began, now)
}

// runs says whether the container of a check runs still.
func (p *Probes) runs(c check) bool {
	s, ok := p.opts.Observed(c.pod.UID).Container(c.container.Name)
	return ok && s.ID == c.target.id && s.State == pod.StateRunning
}

// gone forgets the container of a check: it does not run any more.
func (p *Probes) gone(c check) {
	p.mu.Lock()
	e := c.target.pod
	if e.targets[c.target.id] == c.target {
		p.drop(e, c.target.id)
		p.release(e)
	}
	p.mu.Unlock()
	p.write()
}

// slot waits for a place among the exec probes that start, so that many of them
// at once do not starve the containers of CPU. It is given back when the probe
// ends, or after a while: one that hangs is not starting any more.
func (p *Probes) slot(c check) (release func()) {
	if c.spec.Exec == nil {
		return func() {}
	}
	select {
	case p.slots <- struct{}{}:
	case <-c.ctx.Done():
		return func() {}
	}
	var once sync.Once
	free := func() { once.Do(func() { <-p.slots }) }
	timer := time.AfterFunc(250*time.Millisecond, free)
	return func() {
		timer.Stop()
		free()
	}
}

// take takes a result in: state, metrics, events; and queues the job again. What
// matters after a restart is on disk before anybody can read it.
func (p *Probes) take(c check, a answer, began, now time.Time) {
	result := a.verdict()
	bonus := result == plan.Failure && early(c.job.kind, c.settings, c.target.since, c.due)
	if bonus {
		result = plan.Unknown
	}
	j := c.job
	p.mu.Lock()
	next, changed := j.state.after(j.kind, c.settings, result, j.kind.String()+" probe failed: "+a.output, now)
	news := c.ctx.Err() == nil && (changed || !next.sameBut(j.state, c.settings.period))
	if news {
		j.coming = &next
		p.touch(c.pod.UID)
	}
	p.mu.Unlock()
	if news {
		p.write()
	}
	if !p.accept(c, next, a, now.Sub(began), now) {
		p.write()
		return
	}
	if !bonus {
		p.tell(c, a)
	}
	if changed && p.opts.Changed != nil {
		p.opts.Changed(c.pod.UID)
	}
}

// accept makes next the state of a check's job and queues it again. It does
// nothing and returns false when the check was interrupted.
func (p *Probes) accept(c check, next State, a answer, took time.Duration, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	j := c.job
	interrupted := c.ctx.Err() != nil
	j.cancel()
	j.cancel, j.coming = nil, nil
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

// tell records the event of a result that is not plain success.
func (p *Probes) tell(c check, a answer) {
	ref := event.ContainerRef(c.pod, c.container)
	switch {
	case a.err != nil:
		p.opts.Events.Event(ref, corev1.EventTypeWarning, unhealthy, "%s probe errored and resulted in %s state: %s",
			c.job.kind, a.result, a.err)
	case a.result == warning:
		p.opts.Events.Event(ref, corev1.EventTypeWarning, probeWarning, "%s probe warning: %s", c.job.kind, a.output)
	case a.result == failure:
		p.opts.Events.Event(ref, corev1.EventTypeWarning, unhealthy, "%s probe failed: %s", c.job.kind, a.output)
	}
}
