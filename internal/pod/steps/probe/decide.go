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

// of returns a container's probe of this kind, nil when it has none.
func (k Kind) of(c *corev1.Container) *corev1.Probe {
	return [...]*corev1.Probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe}[k]
}

// settings are a probe's numbers with the defaults of the Kubernetes API.
type settings struct {
	delay, period, timeout time.Duration
	success, failure       int // thresholds
}

func settingsOf(p *corev1.Probe) settings {
	or := func(v, otherwise int32) int32 {
		if v <= 0 {
			return otherwise
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

// State is what is known of one probe of one container id.
type State struct {
	Verdict plan.Verdict `json:"verdict"`
	// Last result, and how many times in a row it came, up to its threshold.
	Last plan.Verdict `json:"last,omitempty"`
	Run  int          `json:"run,omitempty"`
	// OnHold: not probed any more until there is a new container.
	OnHold bool `json:"onHold,omitempty"`
	// Due is when the next probe starts. Later ones are whole periods apart
	// from it, so that it also tells the phase.
	Due time.Time `json:"due"`
	// Message of the last failure.
	Message string `json:"message,omitempty"`
}

// initial is the verdict before the first probe: a container is not ready and
// not known to have started, and is not killed.
func (k Kind) initial() plan.Verdict {
	return [...]plan.Verdict{plan.Unknown, plan.Failure, plan.Success}[k]
}

// firstDue is when a container is probed first. since is when it began to run,
// started when it was known to have started: the same without a startup probe.
//
// Startup and readiness look as soon as they may, so that nobody waits a period
// for a container that is up. Liveness can only do harm then: without a delay of
// its own it looks one period later.
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

// nextDue is the tick after due, or the last one missed when the probe took
// longer than a period.
func nextDue(due time.Time, period time.Duration, now time.Time) time.Time {
	missed := now.Sub(due) / period
	return due.Add(max(1, missed) * period)
}

// begun is the tick that a probe which starts now belongs to: due, or the last
// one since when it comes late.
func begun(due time.Time, period time.Duration, now time.Time) time.Time {
	return due.Add(max(0, now.Sub(due)/period) * period)
}

// resumed is when a probe is due of which an earlier agent knew that it was due
// at due: then, or at the first tick to come. Ticks that were missed are not made
// up for, so that a restart of the agent is no wave of probes.
func resumed(due time.Time, s settings, now time.Time) time.Time {
	ahead := due.Sub(now)
	if ahead < 0 {
		ahead += (s.period - 1 - ahead) / s.period * s.period
	}
	return now.Add(min(ahead, s.delay+s.period)) // if it was further, the clock was set back
}

// anchored is a time of the machine's clock that has passed, on the clock that now was read
// from, which nobody sets: what is counted from it goes on when the machine's is set.
func anchored(at, now time.Time) time.Time {
	if at.IsZero() {
		return at
	}
	return now.Add(min(0, at.Sub(now)))
}

// early says whether a failure now does not count: the first startup probe of a
// container with no initial delay comes at once, as a bonus. It shall not take a
// period of the time that the container has for starting.
func early(k Kind, s settings, since, due time.Time) bool {
	return k == Startup && s.delay == 0 && due.Before(since.Add(s.period))
}

// after is the state after a result, and whether the verdict changed. result is
// plan.Unknown when the probe itself could not be carried out: that says nothing
// of the container.
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

// sameBut says whether the two differ in nothing that matters after a restart: a
// due time that moved by whole periods does not, nor do the words of a failure.
func (st State) sameBut(other State, period time.Duration) bool {
	moved := st.Due.Sub(other.Due)
	return st.Verdict == other.Verdict && st.Last == other.Last && st.Run == other.Run &&
		st.OnHold == other.OnHold && moved%period == 0
}
