package report

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(seconds int) metav1.Time { return metav1.NewTime(t0.Add(time.Duration(seconds) * time.Second)) }

// cond returns a condition with its transition time in seconds after t0.
func cond(t corev1.PodConditionType, status corev1.ConditionStatus, why string, second int) corev1.PodCondition {
	return corev1.PodCondition{Type: t, Status: status, Reason: why, LastTransitionTime: at(second)}
}

func TestMerge(t *testing.T) {
	const yes, no = corev1.ConditionTrue, corev1.ConditionFalse
	tests := []struct {
		name             string
		mirror           bool
		api, ours, wants corev1.PodStatus
	}{
		{"fields of others stay, ours are new", false,
			corev1.PodStatus{Phase: corev1.PodPending, QOSClass: corev1.PodQOSBurstable, NominatedNodeName: "n",
				StartTime: new(at(1)), Message: "old",
				ResourceClaimStatuses: []corev1.PodResourceClaimStatus{{Name: "c"}},
				Conditions: []corev1.PodCondition{cond("example.com/gate", yes, "", 1),
					cond(corev1.PodScheduled, yes, "", 1),
					cond(corev1.PodReady, no, "ContainersNotReady", 1),
					cond(corev1.PodResizePending, yes, "Deferred", 1)}},
			corev1.PodStatus{Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBestEffort, StartTime: new(at(5)),
				ObservedGeneration: 2,
				Conditions: []corev1.PodCondition{cond("example.com/gate", no, "", 9),
					cond("example.com/local", yes, "", 9), cond(corev1.PodScheduled, yes, "", 9),
					cond(corev1.PodInitialized, yes, "", 9), cond(corev1.PodReady, yes, "", 9)}},
			corev1.PodStatus{Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBurstable, NominatedNodeName: "n",
				StartTime: new(at(1)), ObservedGeneration: 2,
				ResourceClaimStatuses: []corev1.PodResourceClaimStatus{{Name: "c"}},
				Conditions: []corev1.PodCondition{cond("example.com/gate", yes, "", 1),
					cond(corev1.PodScheduled, yes, "", 1),
					cond(corev1.PodReady, yes, "", 9), cond(corev1.PodInitialized, yes, "", 9)}}},
		{"a time belongs to a change of the condition's status", false,
			corev1.PodStatus{Conditions: []corev1.PodCondition{cond(corev1.PodReady, no, "A", 1)}},
			corev1.PodStatus{Conditions: []corev1.PodCondition{cond(corev1.PodReady, no, "B", 9)}},
			corev1.PodStatus{Conditions: []corev1.PodCondition{cond(corev1.PodReady, no, "B", 1)}}},
		{"a disruption is reported with the end, not before", false,
			corev1.PodStatus{Phase: corev1.PodRunning},
			corev1.PodStatus{Phase: corev1.PodRunning,
				Conditions: []corev1.PodCondition{cond(corev1.DisruptionTarget, yes, "TerminationByKubelet", 9)}},
			corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{}}},
		{"the end, with its disruption, of a pod that counted as ready", false,
			corev1.PodStatus{Phase: corev1.PodRunning,
				Conditions: []corev1.PodCondition{cond(corev1.PodReady, yes, "", 1)}},
			corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted",
				Conditions: []corev1.PodCondition{cond(corev1.PodReady, yes, "", 1),
					cond(corev1.DisruptionTarget, yes, "TerminationByKubelet", 9)}},
			corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted",
				Conditions: []corev1.PodCondition{cond(corev1.PodReady, no, "PodFailed", 1),
					cond(corev1.DisruptionTarget, yes, "TerminationByKubelet", 9)}}},
		{"ended by somebody else", false,
			corev1.PodStatus{Phase: corev1.PodFailed, Reason: "NodeLost", Message: "m"},
			corev1.PodStatus{Phase: corev1.PodRunning},
			corev1.PodStatus{Phase: corev1.PodFailed, Reason: "NodeLost", Message: "m",
				Conditions: []corev1.PodCondition{}}},
		{"a static pod goes on after its end", true,
			corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfcpu"}, corev1.PodStatus{Phase: corev1.PodRunning},
			corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := &corev1.Pod{Status: tt.api}
			if tt.mirror {
				p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
			}
			if diff := cmp.Diff(tt.wants, merge(p, tt.ours, nil)); diff != "" {
				t.Errorf("merged (-want +got):\n%s", diff)
			}
		})
	}
}

// A condition that changed and changed back while the API server was away gets the time of the last change, if this
// process has seen it. Otherwise the API's time stays.
func TestTimesOfConditions(t *testing.T) {
	tests := []struct {
		name                    string
		first, api, ours, wants int
	}{
		{"unchanged", 1, 1, 1, 1},
		{"changed twice while away", 1, 1, 9, 9},
		{"changed by another agent", 9, 4, 9, 4},
		{"reported by another agent meanwhile", 1, 9, 4, 9},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			up := func(second int) corev1.PodStatus {
				return corev1.PodStatus{Phase: corev1.PodRunning,
					Conditions: []corev1.PodCondition{cond(corev1.PodReady, corev1.ConditionTrue, "", second)}}
			}
			first := times(nil).with(up(tt.first)).with(up(tt.ours)) // the first counts
			if diff := cmp.Diff(up(tt.wants), merge(&corev1.Pod{Status: up(tt.api)}, up(tt.ours), first)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The creation of a container is reported with its start, unless users see another difference.
func TestCreationAloneIsNotReported(t *testing.T) {
	waiting := func(id, why, message string) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: "app", ContainerID: id,
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: why, Message: message}}}
	}
	again := waiting("c://2", "ContainerCreating", "")
	again.RestartCount = 1
	tests := []struct {
		name     string
		api, now corev1.ContainerStatus
		reported bool
	}{
		{"made", waiting("", "ContainerCreating", ""), waiting("c://1", "ContainerCreating", ""), false},
		{"made after init containers", waiting("", "PodInitializing", ""), waiting("c://1", "ContainerCreating", ""),
			false},
		{"waits for something", waiting("", "ContainerCreating", ""),
			waiting("c://1", "ContainerCreating", "waiting for a device"), true},
		{"cannot start", waiting("", "ContainerCreating", ""), waiting("c://1", "RunContainerError", ""), true},
		{"after a crash", waiting("", "CrashLoopBackOff", ""), waiting("c://1", "ContainerCreating", ""), true},
		{"made again", waiting("", "ContainerCreating", ""), again, true},
		{"runs", waiting("", "ContainerCreating", ""),
			corev1.ContainerStatus{Name: "app", ContainerID: "c://1",
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			status := func(c corev1.ContainerStatus) corev1.PodStatus {
				return corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{c},
					Conditions: []corev1.PodCondition{}}
			}
			wants := tt.api
			if tt.reported {
				wants = tt.now
			}
			if diff := cmp.Diff(status(wants),
				merge(&corev1.Pod{Status: status(tt.api)}, status(tt.now), nil)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestPatch(t *testing.T) {
	was := corev1.PodStatus{Phase: corev1.PodPending, Message: "gone", PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}},
		Conditions: []corev1.PodCondition{cond(corev1.PodResizePending, "True", "", 1),
			cond(corev1.PodReady, "False", "x", 1)}}
	now := corev1.PodStatus{Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}},
		Conditions: []corev1.PodCondition{cond(corev1.PodReady, "True", "", 2)}}
	tests := []struct {
		name     string
		from, to corev1.PodStatus
		want     string
	}{
		{"equal", was, was, `{"metadata":{"uid":"u"}}`},
		{"times that the API cannot tell apart", corev1.PodStatus{StartTime: new(at(1))},
			corev1.PodStatus{StartTime: &metav1.Time{Time: at(1).Add(time.Millisecond)}}, `{"metadata":{"uid":"u"}}`},
		{"different", was, now, `{"metadata":{"uid":"u"},"status":{"$setElementOrder/conditions":[{"type":"Ready"}],` +
			`"conditions":[{"lastTransitionTime":"2026-03-01T12:00:02Z","reason":null,"status":"True",` +
			`"type":"Ready"},` +
			`{"$patch":"delete","type":"PodResizePending"}],` +
			`"message":null,"phase":"Running"}}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			patch, err := difference(tt.from, tt.to)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, string(guarded(patch, "u"))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestNext(t *testing.T) {
	sec := func(n int) time.Time { return t0.Add(time.Duration(n) * time.Second) }
	tests := []struct {
		name   string
		rows   []row
		oldest bool
		want   types.UID
		at     time.Time
	}{
		{name: "none"},
		{name: "the most urgent",
			rows: []row{{Row: Row{UID: "a"}, class: remaining, since: sec(1)},
				{Row: Row{UID: "b"}, class: readiness, since: sec(2)},
				{Row: Row{UID: "c"}, class: ending, since: sec(3)}}, want: "c"},
		{name: "the oldest, for fairness",
			rows: []row{{Row: Row{UID: "a"}, class: remaining, since: sec(1)},
				{Row: Row{UID: "c"}, class: ending, since: sec(3)}},
			oldest: true, want: "a"},
		{name: "by age within a class",
			rows: []row{{Row: Row{UID: "a"}, since: sec(2)}, {Row: Row{UID: "b"}, since: sec(1)}}, want: "b"},
		{name: "not while one is in flight", rows: []row{{Row: Row{UID: "a"}, busy: true}}},
		{name: "not before its time",
			rows: []row{{Row: Row{UID: "a"}, due: sec(12)}, {Row: Row{UID: "b"}, due: sec(11)}}, at: sec(11)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dirty := map[types.UID]*row{}
			for _, r := range tt.rows {
				dirty[r.UID] = &r
			}
			best, when := next(dirty, sec(10), tt.oldest)
			var got types.UID
			if best != nil {
				got = best.UID
			}
			if got != tt.want || !when.Equal(tt.at) {
				t.Errorf("%q at %s, want %q at %s", got, when, tt.want, tt.at)
			}
		})
	}
}

func TestUrgency(t *testing.T) {
	running := corev1.PodStatus{Phase: corev1.PodRunning}
	up := corev1.PodStatus{Phase: corev1.PodRunning,
		Conditions: []corev1.PodCondition{cond(corev1.PodReady, "True", "", 1)}}
	done := corev1.PodStatus{Phase: corev1.PodSucceeded}
	got := []class{urgency(running, running, false), urgency(running, up, false), urgency(up, running, false),
		urgency(up, done, false),
		urgency(done, done, false), urgency(done, done, true), urgency(running, done, true)}
	if diff := cmp.Diff([]class{remaining, readiness, readiness, ending, remaining, readiness, ending},
		got); diff != "" {
		t.Error(diff)
	}
}

func TestJudge(t *testing.T) {
	pods := corev1.Resource("pods")
	tests := []struct {
		name  string
		err   error
		want  answer
		after time.Duration
	}{
		{"none", nil, accepted, 0},
		{"no such pod", apierrors.NewNotFound(pods, "a"), gone, 0},
		{"another pod", apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "a",
			field.ErrorList{field.Invalid(field.NewPath("metadata", "uid"), "u", "field is immutable")}), gone, 0},
		{"another object", apierrors.NewConflict(pods, "a", errors.New("uid")), stale, 0},
		{"too many", apierrors.NewTooManyRequests("slowly", 3), busy, 3 * time.Second},
		{"etcd is away", apierrors.NewInternalError(errors.New("etcdserver")), failed, 0},
		{"slow", apierrors.NewServerTimeout(pods, "patch", 2), failed, 2 * time.Second},
		{"invalid", apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "a", nil), refused, 0},
		{"forbidden", apierrors.NewForbidden(pods, "a", errors.New("not yours")), refused, 0},
		{"certificate has expired", apierrors.NewUnauthorized("expired"), lost, 0},
		{"no connection", errors.New("dial tcp: connection refused"), lost, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.err
			if err != nil {
				err = fmt.Errorf("patch pod status: %w", err)
			}
			if got, after := judge(err); got != tt.want || after != tt.after {
				t.Errorf("%d after %s, want %d after %s", got, after, tt.want, tt.after)
			}
		})
	}
}

func TestDelay(t *testing.T) {
	var got []time.Duration
	for _, fails := range []int{1, 2, 3, 8, 9, 100} {
		got = append(got, delay(failed, fails, 0, 1))
	}
	got = append(got, delay(failed, 1, 0, 0), delay(lost, 100, 0, 1), delay(refused, 100, 0, 1),
		delay(busy, 9, 2*time.Second, 0), delay(busy, 9, 2*time.Second, 1))
	const ms = time.Millisecond
	want := []time.Duration{200 * ms, 400 * ms, 800 * ms, 25600 * ms, lastDelay, lastDelay, 100 * ms, lastOutage,
		refusedDelay, 2000 * ms, 2500 * ms}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestRepairsGrowApart(t *testing.T) {
	now, r := t0, repairs{}
	var waits []time.Duration
	for range 11 {
		at, _ := r.next(now)
		waits = append(waits, at.Sub(now))
		now = at
		if _, r = r.next(now); !r.last.Equal(now) {
			t.Fatalf("not repaired at %s", now)
		}
	}
	const s = time.Second
	if diff := cmp.Diff([]time.Duration{0, s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 64 * s, 128 * s, 256 * s,
		lastRepair}, waits); diff != "" {
		t.Error(diff)
	}
	if at, _ := r.next(now.Add(quiet + s)); !at.Equal(now.Add(quiet + s)) {
		t.Errorf("a quiet time is not forgotten: %s", at.Sub(now))
	}
}

func TestOutage(t *testing.T) {
	first := outage{}.lost(t0, t0.Add(time.Second), 1)
	same := first.lost(t0, t0.Add(2*time.Second), 1) // was in flight together with the first
	next := first.lost(t0.Add(2*time.Second), t0.Add(3*time.Second), 1)
	want := outage{fails: 2, since: t0.Add(3 * time.Second), until: t0.Add(3*time.Second + 400*time.Millisecond)}
	if same != first || next != want {
		t.Errorf("%+v and %+v, want %+v", same, next, want)
	}
	got := []int{outage{}.room(16, t0), first.room(16, t0), first.room(16, first.until)}
	if diff := cmp.Diff([]int{16, 0, 1}, got); diff != "" {
		t.Error(diff)
	}
}
