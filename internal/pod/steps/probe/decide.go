package probe

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/pod/plan"
)

// Kind of a probe.
type Kind int

// The kinds that Kubernetes has.
const (
	Startup Kind = iota
	Readiness
	Liveness
	kinds = iota
)

// String is the kubelet's word in events and metrics.
func (k Kind) String() string { return [...]string{"Startup", "Readiness", "Liveness"}[k] }

func (k Kind) lower() string { return strings.ToLower(k.String()) }

// of returns a container's probe of this kind, or nil if it has none.
func (k Kind) of(c *corev1.Container) *corev1.Probe {
	return [...]*corev1.Probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe}[k]
}

// settings are a probe's numbers with the defaults of the Kubernetes API.
type settings struct {
	delay, period, timeout time.Duration
	success, failure       int // thresholds
}

func settingsOf(p *corev1.Probe) settings {
	or := func(v, standard int32) int32 {
		if v <= 0 {
			return standard
		}
		return v
	}
	return settings{
		delay:   time.Duration(p.InitialDelaySeconds) * time.Second,
		period:  time.Duration(or(p.PeriodSeconds, 10)) * time.Second,
		timeout: time.Duration(or(p.TimeoutSeconds, 1)) * time.Second,
		success: int(or(p.SuccessThreshold, 1)),
		failure: int(or(p.FailureThreshold, 3)),
	}
}

// State is the state of one probe of one container id.
type State struct {
	Verdict plan.Verdict `json:"verdict"`
	// Last is the last result, and Run how many times in a row it came, up to its threshold.
	Last plan.Verdict `json:"last,omitempty"`
	Run  int          `json:"run,omitempty"`
	// OnHold means that the container is not probed any more. A new container starts fresh.
	OnHold bool `json:"onHold,omitempty"`
	// Due is when the next probe starts. All later ones follow in whole periods, so Due also fixes their phase.
	Due time.Time `json:"due"`
	// Message of the last failure.
	Message string `json:"message,omitempty"`
}

// initial returns the verdict before the first probe: a container is not ready, is not known to have started, and is
// not killed.
func (k Kind) initial() plan.Verdict {
	return [...]plan.Verdict{plan.Unknown, plan.Failure, plan.Success}[k]
}

// firstDue returns when a container is first probed. since is when it began to run. started is when it had started: the
// same time if it has no startup probe.
//
// Startup and readiness probes run as early as possible, so that a container that is up need not wait for a period. An
// early liveness probe could only do harm: without an initial delay it runs one period later.
func firstDue(k Kind, s settings, since, started time.Time) time.Time {
	due := since.Add(s.delay)
	if k == Liveness && (s.delay == 0 || started.After(since)) {
		due = later(due, started.Add(s.period))
	}
	return later(due, started)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// nextDue returns the tick after due. If the probe took longer than a period, it returns the last missed tick.
func nextDue(due time.Time, period time.Duration, now time.Time) time.Time {
	missed := now.Sub(due) / period
	return due.Add(max(1, missed) * period)
}

// begun returns the tick of a probe that starts now: due, or the last tick since then if the probe starts late.
func begun(due time.Time, period time.Duration, now time.Time) time.Time {
	return due.Add(max(0, now.Sub(due)/period) * period)
}

// resumed returns when a probe is due after an agent restart. due is the time from the earlier agent. The result is
// that time, or the next tick if it has passed. Missed ticks are not made up for, so that a restart causes no wave of
// probes.
func resumed(due time.Time, s settings, now time.Time) time.Time {
	ahead := due.Sub(now)
	if ahead < 0 {
		ahead += (s.period - 1 - ahead) / s.period * s.period
	}
	return now.Add(min(ahead, s.delay+s.period)) // more than that means that the clock was set back
}

// anchored converts a past time of the wall clock into one on the monotonic clock of now. Intervals from it then stay
// right when the wall clock is set.
func anchored(at, now time.Time) time.Time {
	if at.IsZero() {
		return at
	}
	return now.Add(min(0, at.Sub(now)))
}

// early reports whether a failure at this time does not count. The first startup probe of a container without initial
// delay runs at once, as a bonus. Its failure must not use up a period of the container's start time.
func early(k Kind, s settings, since, due time.Time) bool {
	return k == Startup && s.delay == 0 && due.Before(since.Add(s.period))
}

// after returns the state after a result, and whether the verdict changed. The result plan.Unknown means that the probe
// could not be executed. It says nothing about the container.
func (st State) after(k Kind, s settings, result plan.Verdict, message string, now time.Time) (State, bool) {
	st.Due = nextDue(st.Due, s.period, now)
	if result == plan.Unknown {
		return st, false
	}
	threshold := s.success
	if result == plan.Failure {
		threshold, st.Message = s.failure, message
	}
	if st.Last != result {
		st.Last, st.Run = result, 0
	}
	st.Run = min(st.Run+1, threshold)
	if st.Run < threshold {
		return st, false
	}
	changed := st.Verdict != result
	st.Verdict = result
	if k == Startup || k == Liveness && result == plan.Failure {
		st.OnHold, st.Run = true, 0
	}
	return st, changed
}

// equivalent reports whether two states differ in nothing that matters after a restart. A due time that moved by whole
// periods does not matter, and neither does the message of a failure.
func (st State) equivalent(other State, period time.Duration) bool {
	shift := st.Due.Sub(other.Due)
	return st.Verdict == other.Verdict && st.Last == other.Last && st.Run == other.Run &&
		st.OnHold == other.OnHold && shift%period == 0
}
