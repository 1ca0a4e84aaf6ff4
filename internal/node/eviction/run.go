package eviction

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/base/retry"
)

// Options of an Evictor. All are required.
type Options struct {
	Policy
	Facts Facts
	Alarm Alarm
	Pods  Pods
	// Ready is closed when the pods that an earlier agent left are known.
	Ready <-chan struct{}
	// Pending is the time until the next look while pods end. Soonest is the least time until the next look.
	Pending, Soonest time.Duration
	Metrics          Metrics
	Now              func() time.Time
	Log              *slog.Logger
}

// Facts reads the machine.
type Facts interface {
	// Observe looks at all signals that it can read. The error says why others are missing.
	Observe(now time.Time) (Observations, error)
}

// Alarm is the kernel's notification that a signal has moved.
type Alarm interface {
	// Arm makes the kernel notify when less than limit is available, if it can.
	Arm(s Signal, seen Observation, limit int64)
	// Covers reports whether the kernel notifies about a signal at the limit of the last Arm.
	Covers(s Signal) bool
	// C receives when a signal may have crossed a limit.
	C() <-chan struct{}
}

// Pods are the pods of this node.
type Pods interface {
	// Reclaim removes files that no pod needs any more. soon says that this is still becoming free, so that no pod has
	// to end for it now.
	Reclaim(ctx context.Context, c Crossing) (removed, soon bool)
	// Candidates returns the pods that run, with their use of what the signal counts.
	Candidates(ctx context.Context, s Signal) []Candidate
	// Usage returns how much of it a victim uses, for its message.
	Usage(ctx context.Context, p *corev1.Pod, s Signal) Usage
	// Evict ends a pod.
	Evict(v Victim)
	// SetPressure reports the pressure conditions that hold. It is called after each look.
	SetPressure(all []corev1.NodeConditionType)
	// Changed receives when a pod may have started or ended. It must receive often enough, and may receive too often.
	Changed() <-chan struct{}
}

// Victim is a pod that ends now.
type Victim struct {
	Pod       *corev1.Pod
	Condition corev1.NodeConditionType
	// Message and Annotations are for the event.
	Message     string
	Annotations map[string]string
	Grace       time.Duration
}

// Evictor watches the signals and evicts pods. Run is its only goroutine; Standings may be called from others.
type Evictor struct {
	Options
	state  State
	before Observations
	past   history
	// idle holds the signals that are short while no pod is left to evict, so that the log names each once.
	idle   map[Signal]bool
	failed string // the last error of Facts, so that the log has it once
	// follows: a pod that starts or ends is a reason to look. Victims end, or the cgroup of all pods appears.
	follows bool
}

// New makes an Evictor that has seen nothing.
func New(o Options) *Evictor {
	return &Evictor{Options: o, before: Observations{}, idle: map[Signal]bool{}}
}

// calm is the least time between two looks. A kernel that notifies more often than that wakes the loop once.
const calm = 10 * time.Millisecond

// pendingLater is the time until the next look while no pod is left that could be evicted.
const pendingLater = 2 * time.Second

// Run looks at the signals until ctx ends. It evicts no pod before Ready.
func (e *Evictor) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-e.Ready:
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		case <-e.Alarm.C():
		case <-e.Pods.Changed():
			if !e.follows {
				continue
			}
		}
		timer.Reset(e.look(ctx))
		if err := retry.Sleep(ctx, calm); err != nil {
			return err
		}
	}
}

// Prime looks once before Run, so that admission knows the pressure from its first pod on. It evicts nothing.
func (e *Evictor) Prime() { e.decide(e.Now()) }

// decide observes and decides once, and reports the pressure.
func (e *Evictor) decide(now time.Time) (seen Observations, v Verdict) {
	seen, err := e.Facts.Observe(now)
	if text := errorText(err); text != e.failed {
		if e.failed = text; err != nil {
			e.Log.Warn("cannot read all signals of eviction, continuing without them", "err", err)
		}
	}
	e.past.add(seen)
	e.state, v = Decide(e.Thresholds, seen, e.state, e.Transition, now)
	e.Pods.SetPressure(v.Pressure)
	return seen, v
}

// look decides and acts once. It returns the time until the next look.
func (e *Evictor) look(ctx context.Context) time.Duration {
	now := e.Now()
	seen, v := e.decide(now)
	next := latestLook
	for _, c := range v.Crossings {
		next = min(next, e.act(ctx, c))
	}
	if len(v.Crossings) == 0 {
		clear(e.idle)
	}
	for signal, limit := range nextLimits(e.Thresholds, seen) {
		e.Alarm.Arm(signal, seen[signal], limit)
	}
	e.follows = len(v.Crossings) > 0 || slices.ContainsFunc(e.Thresholds, func(t Threshold) bool {
		_, ok := seen[t.Signal]
		return !ok && t.Signal == AllocatableMemoryAvailable
	})
	silent := func(s Signal) bool { return !e.Alarm.Covers(s) }
	next = min(next, max(e.Soonest, NextLook(e.Thresholds, e.before, seen, silent)))
	if !v.Next.IsZero() {
		next = min(next, max(0, v.Next.Sub(now)))
	}
	e.before = maps.Clone(seen)
	return next
}

// act evicts the pods that a crossing needs, and returns when to look again.
func (e *Evictor) act(ctx context.Context, c Crossing) time.Duration {
	signal := c.Threshold.Signal
	removed, soon := e.Pods.Reclaim(ctx, c)
	if removed {
		c = e.again(c)
	}
	if soon || c.Shortfall <= 0 {
		return e.Pending
	}
	all := e.Pods.Candidates(ctx, signal)
	ending := slices.ContainsFunc(all, func(p Candidate) bool { return !p.EndsBy.IsZero() })
	// A pod that has ended since the look is no candidate, and what it has freed would count as missing.
	if len(all) > 0 {
		if c = e.again(c); c.Shortfall <= 0 {
			return e.Pending
		}
	}
	victims := Choose(c, all, e.Now())
	for _, victim := range victims {
		message, annotations := Message(victim.Pod, c, e.Pods.Usage(ctx, victim.Pod, signal))
		e.Pods.Evict(Victim{Pod: victim.Pod, Condition: signal.Condition(), Message: message,
			Annotations: annotations, Grace: Grace(c.Threshold, victim.Pod, e.MaxGrace)})
		e.Metrics.evicted(signal, e.Now().Sub(c.Seen.At))
	}
	if len(victims) > 0 || ending {
		delete(e.idle, signal)
		return e.Pending
	}
	if !e.idle[signal] {
		e.idle[signal] = true
		e.Log.Warn("the node is short of a resource and no pod can be evicted for it", "signal", signal, "available",
			c.Seen.Available, "threshold", c.Limit)
	}
	return pendingLater
}

// again looks once more at the signal of a crossing. The shortfall is 0 or less if enough is free now.
func (e *Evictor) again(c Crossing) Crossing {
	seen, _ := e.Facts.Observe(e.Now()) // the next look reports the error
	o, ok := seen[c.Threshold.Signal]
	if !ok {
		return c
	}
	fresh := c.Threshold.crossing(o)
	if !c.Threshold.short(o, true) {
		fresh.Shortfall = 0
	}
	return fresh
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
