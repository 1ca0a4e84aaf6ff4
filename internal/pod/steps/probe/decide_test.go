package probe

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/pod/plan"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(d time.Duration) time.Time { return t0.Add(d) }

func TestSettingsDefaults(t *testing.T) {
	tests := []struct {
		name  string
		probe corev1.Probe
		want  settings
	}{
		{"defaults", corev1.Probe{}, settings{0, 10 * time.Second, time.Second, 1, 3}},
		{"all given",
			corev1.Probe{InitialDelaySeconds: 5, PeriodSeconds: 7, TimeoutSeconds: 2, SuccessThreshold: 4,
				FailureThreshold: 6},
			settings{5 * time.Second, 7 * time.Second, 2 * time.Second, 4, 6}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, settingsOf(&tt.probe), cmp.AllowUnexported(settings{})); diff != "" {
				t.Errorf("settings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAfter(t *testing.T) {
	const ok, bad, none = plan.Success, plan.Failure, plan.Unknown
	s := settings{period: 10 * time.Second, success: 2, failure: 3}
	due := at(10 * time.Second)
	next := at(20 * time.Second)
	tests := []struct {
		name    string
		kind    Kind
		state   State
		result  plan.Verdict
		want    State
		changed bool
	}{
		{"first failure", Liveness, State{Verdict: ok}, bad, State{Verdict: ok, Last: bad, Run: 1, Message: "m"},
			false},
		{"below the threshold", Liveness, State{Verdict: ok, Last: bad, Run: 1}, bad,
			State{Verdict: ok, Last: bad, Run: 2, Message: "m"}, false},
		{"liveness fails and is on hold", Liveness, State{Verdict: ok, Last: bad, Run: 2}, bad,
			State{Verdict: bad, Last: bad, OnHold: true, Message: "m"}, true},
		{"success in between starts the count anew", Liveness, State{Verdict: ok, Last: bad, Run: 2}, ok,
			State{Verdict: ok, Last: ok, Run: 1}, false},
		{"a probe that errors changes nothing", Liveness, State{Verdict: ok, Last: bad, Run: 2}, none,
			State{Verdict: ok, Last: bad, Run: 2}, false},
		{"readiness needs its successes", Readiness, State{Verdict: bad}, ok, State{Verdict: bad, Last: ok, Run: 1},
			false},
		{"ready", Readiness, State{Verdict: bad, Last: ok, Run: 1}, ok, State{Verdict: ok, Last: ok, Run: 2}, true},
		{"the count stays at the threshold", Readiness, State{Verdict: ok, Last: ok, Run: 2}, ok,
			State{Verdict: ok, Last: ok, Run: 2}, false},
		{"not ready any more, and probed on", Readiness, State{Verdict: ok, Last: bad, Run: 2}, bad,
			State{Verdict: bad, Last: bad, Run: 3, Message: "m"}, true},
		{"started, and on hold", Startup, State{Last: ok, Run: 1}, ok, State{Verdict: ok, Last: ok, OnHold: true},
			true},
		{"never started, and on hold", Startup, State{Last: bad, Run: 2}, bad,
			State{Verdict: bad, Last: bad, OnHold: true, Message: "m"}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.state.Due, tt.want.Due = due, next
			got, changed := tt.state.after(tt.kind, s, tt.result, "m", at(11*time.Second))
			if diff := cmp.Diff(tt.want, got); diff != "" || changed != tt.changed {
				t.Errorf("changed = %v, want %v; state (-want +got):\n%s", changed, tt.changed, diff)
			}
		})
	}
}

func TestFirstDue(t *testing.T) {
	const s, ten = time.Second, 10 * time.Second
	tests := []struct {
		name    string
		kind    Kind
		delay   time.Duration
		started time.Duration
		want    time.Duration
	}{
		{"startup at once", Startup, 0, 0, 0},
		{"startup after its delay", Startup, 5 * s, 0, 5 * s},
		{"readiness at once", Readiness, 0, 0, 0},
		{"readiness when started", Readiness, 5 * s, 30 * s, 30 * s},
		{"readiness after its delay, though started", Readiness, 60 * s, 30 * s, 60 * s},
		{"liveness a period later", Liveness, 0, 0, ten},
		{"liveness after its delay", Liveness, 3 * s, 0, 3 * s},
		{"liveness a period after the start-up", Liveness, 3 * s, 30 * s, 40 * s},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := firstDue(tt.kind, settings{delay: tt.delay, period: ten}, t0, at(tt.started))
			if want := at(tt.want); !got.Equal(want) {
				t.Errorf("due %s after the start, want %s", got.Sub(t0), want.Sub(t0))
			}
		})
	}
}

func TestTicks(t *testing.T) {
	const period = 10 * time.Second
	tests := []struct {
		name                 string
		due, now             time.Duration
		next, begun, resumed time.Duration
	}{
		{"before it is due", 20, 15, 30, 20, 20},
		{"on time", 20, 20, 30, 20, 20},
		{"took a part of the period", 20, 24, 30, 20, 30},
		{"took the period: at once", 20, 30, 30, 30, 30},
		{"took longer: at once, ticks in between are lost", 20, 47, 40, 40, 50},
		{"the clock was set back", 7200, 15, 7210, 7200, 25},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			due, now := at(tt.due*time.Second), at(tt.now*time.Second)
			got := [...]time.Duration{nextDue(due, period, now).Sub(t0), begun(due, period, now).Sub(t0),
				resumed(due, settings{period: period}, now).Sub(t0)}
			want := [...]time.Duration{tt.next * time.Second, tt.begun * time.Second, tt.resumed * time.Second}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("next, begun, resumed (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnchored(t *testing.T) {
	now := at(100 * time.Second)
	got := []time.Time{anchored(at(90*time.Second), now), anchored(at(7200*time.Second), now),
		anchored(time.Time{}, now)}
	if diff := cmp.Diff([]time.Time{at(90 * time.Second), now, {}}, got); diff != "" {
		t.Errorf("of the past, of the future, none (-want +got):\n%s", diff)
	}
}

func TestEarlyFailureOfStartupDoesNotCount(t *testing.T) {
	none, delayed := settings{period: 10 * time.Second}, settings{delay: time.Second, period: 10 * time.Second}
	got := map[string]bool{
		"first startup probe":   early(Startup, none, t0, t0),
		"second startup probe":  early(Startup, none, t0, at(10*time.Second)),
		"startup with a delay":  early(Startup, delayed, t0, at(time.Second)),
		"first readiness probe": early(Readiness, none, t0, t0),
	}
	want := map[string]bool{"first startup probe": true, "second startup probe": false, "startup with a delay": false,
		"first readiness probe": false}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("early (-want +got):\n%s", diff)
	}
}
