package gate

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace/noop"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/node"
	"github.com/berth-run/berth/internal/pod/admission"
	"github.com/berth-run/berth/internal/pod/fleet"
	"github.com/berth-run/berth/internal/record/timeline"
)

func TestBegins(t *testing.T) {
	up := []pod.SandboxStatus{{ID: "s", Ready: true}}
	gone := []pod.SandboxStatus{{ID: "s"}}
	runs := []pod.ContainerStatus{{ID: "c", State: pod.StateRunning}}
	over := []pod.ContainerStatus{{ID: "c", State: pod.StateExited}}
	ready, interrupted := timeline.Timeline{End: time.Unix(1, 0)}, timeline.Timeline{Interrupted: true}
	for name, c := range map[string]struct {
		observed *pod.Observed
		phase    corev1.PodPhase
		last     *timeline.Timeline
		want     bool
	}{
		"new":                {nil, "", nil, true},
		"new to the runtime": {&pod.Observed{}, corev1.PodPending, nil, true},
		"runs": {&pod.Observed{Sandboxes: up, Containers: runs}, corev1.PodRunning,
			&ready, false},
		"runs, its start is not kept": {&pod.Observed{Sandboxes: up, Containers: runs}, corev1.PodRunning,
			nil, false},
		"crashes": {&pod.Observed{Sandboxes: up, Containers: over}, corev1.PodRunning,
			&ready, false},
		"its agent ended while it came up": {&pod.Observed{Sandboxes: up, Containers: runs}, corev1.PodRunning,
			&interrupted, true},
		"the same, before its start was kept": {&pod.Observed{Sandboxes: up}, corev1.PodPending, nil, true},
		"after a reboot": {&pod.Observed{Sandboxes: gone, Containers: over}, corev1.PodRunning,
			&ready, true},
		"succeeded, its sandbox has been ended": {&pod.Observed{Sandboxes: gone, Containers: over}, corev1.PodSucceeded,
			&ready, false},
		"succeeded, and nothing is left of it": {nil, corev1.PodSucceeded, nil, false},
	} {
		var last timeline.Timeline
		if c.last != nil {
			last = *c.last
		}
		if got := begins(c.observed, corev1.PodStatus{Phase: c.phase}, last, c.last != nil); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// events keeps the events that were recorded.
type events []string

func (b *events) Event(ref corev1.ObjectReference, kind, reason, format string, args ...any) {
	*b = append(*b, ref.Name+" "+kind+" "+reason+": "+fmt.Sprintf(format, args...))
}

// station is a gate of a node with one CPU. It stands in for every part that the stages call, and keeps the calls that
// change something, in order.
type station struct {
	appArmor bool // the host enforces profiles
	*Gate
	registry *prometheus.Registry
	events   events
	calls    []string
	// last is the last status of each pod, kept the part of it to continue from.
	last, kept map[types.UID]corev1.PodStatus
	bookErr    error
}

func (s *station) call(format string, args ...any) {
	s.calls = append(s.calls, fmt.Sprintf(format, args...))
}

func (s *station) Last(uid types.UID) corev1.PodStatus { return s.last[uid] }
func (s *station) Kept(uid types.UID) corev1.PodStatus { return s.kept[uid] }

func (s *station) Refuses(p *pod.Pod) (fleet.Verdict, bool) {
	return fleet.Verdict{Reject: true, Reason: "NodeShutdown", Message: "no pods now"}, p.Name == "late"
}

func (s *station) Evicting(uid types.UID) *pod.Stop {
	if uid != "half" {
		return nil
	}
	return &pod.Stop{Reason: pod.StopEvicted}
}

func (s *station) Confirm() { s.call("confirm labels") }

func (s *station) WithoutExchanges(f func()) {
	s.call("hold devices")
	f()
	s.call("release devices")
}

func (s *station) Restore() { s.call("look") }

func (s *station) Book(p *corev1.Pod, beside []types.UID) error {
	s.call("book %s beside %v", p.Name, beside)
	return s.bookErr
}

func (s *station) Reserve(p *corev1.Pod, staying []types.UID) {
	s.call("keep for %s beside %v", p.Name, staying)
}
func (s *station) Drop(uid types.UID)    { s.call("drop %s", uid) }
func (s *station) Forget(uid types.UID)  { s.call("free %s", uid) }
func (s *station) Refused(why, _ string) { s.call("count %s", why) }

func (s *station) Allocate(want *pod.Pod, alone, beside func(*pod.Pod) string) *pod.Pod {
	s.call("allocate %s: %q alone, %q beside", want.Name, alone(want), beside(want))
	return want
}

func (s *station) Admitted(p *pod.Pod)   { s.call("admitted %s", p.Name) }
func (s *station) Preempt(uid types.UID) { s.call("preempt %s", uid) }
func (s *station) Reject(uid types.UID, why, message string) {
	s.call("reject %s: %s: %s", uid, why, message)
}

// did returns the calls since it was last called.
func (s *station) did() []string {
	calls := s.calls
	s.calls = nil
	return calls
}

// Of is a standalone node with one CPU. For the pod picky, it knows only an old Node object.
func (s *station) Of(p *pod.Pod) admission.In {
	facts := node.Facts{Name: "node1",
		Allocatable: corev1.ResourceList{"cpu": resource.MustParse("1"), "pods": resource.MustParse("9")}}
	return admission.In{Pod: p.Pod, Node: facts,
		Config: admission.Config{Standalone: true, NodeOld: p.Name == "picky", AppArmor: s.appArmor}}
}

// A blocked pod starts when the machine has what it asks for, without a restart of the agent.
func TestBlockedPodIsTriedAgain(t *testing.T) {
	s := newStation(t)
	p := asking("armored", "", "1m")
	p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{
		AppArmorProfile: &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}}
	if v := s.Admit(p, nil); !v.Blocked || !v.Again.Equal(time.Unix(1000, 0).Add(blockedRetry)) {
		t.Errorf("without AppArmor: %+v", v)
	}
	s.appArmor = true
	if v := s.Admit(p, nil); !v.Admit {
		t.Errorf("with AppArmor: %+v", v)
	}
}

func newStation(t *testing.T) *station {
	s := &station{registry: prometheus.NewRegistry(), last: map[types.UID]corev1.PodStatus{},
		kept: map[types.UID]corev1.PodStatus{}}
	s.Gate = New(Options{
		Inputs: s, Observed: store.New[types.UID, *pod.Observed](), Statuses: s, Shutdown: s,
		Evictions: s, Labels: s, Devices: s,
		Ledger: s, Resources: s, Pods: s, Now: func() time.Time { return time.Unix(1000, 0) },
		Recorder: timeline.NewRecorder(timeline.RecorderOptions{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}),
		Provider: noop.NewTracerProvider(), Counts: NewCounts(s.registry), Events: &s.events,
		Log: slog.New(slog.DiscardHandler),
	})
	return s
}

func asking(name, class, cpu string) *pod.Pod {
	return &pod.Pod{Pod: &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
		Spec: corev1.PodSpec{PriorityClassName: class,
			Containers: []corev1.Container{{Name: "app", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu)}}}}},
	}}
}

// Each verdict is reported and counted once, and the pods that have to make room are preempted.
func TestAdmitReportsEachVerdictOnce(t *testing.T) {
	s := newStation(t)
	holder := fleet.Other{Pod: asking("a", "", "700m")}
	ending := fleet.Other{Pod: holder.Pod, Terminating: true, EndsBy: time.Unix(100, 0)}
	const short = "Node didn't have enough resource: cpu, requested: 500, used: 700, capacity: 1000"
	critical := asking("critical", "system-node-critical", "500m")
	for _, step := range []struct {
		pod    *pod.Pod
		others []fleet.Other
		want   fleet.Verdict
	}{
		{asking("a", "", "700m"), nil, fleet.Verdict{Admit: true}},
		{asking("b", "", "500m"), []fleet.Other{holder},
			fleet.Verdict{Reject: true, Reason: "OutOfcpu", Message: short}},
		{critical, []fleet.Other{holder},
			fleet.Verdict{Reserve: true, Reason: "OutOfcpu", Message: "waiting for pod default/a to end: " + short}},
		{critical, []fleet.Other{ending},
			fleet.Verdict{Reserve: true, Reason: "OutOfcpu", Message: "waiting for pod default/a to end: " + short,
				Again: time.Unix(100, 0)}},
		{critical, nil, fleet.Verdict{Admit: true}},
		{asking("half", "", "7"), nil, fleet.Verdict{Admit: true, Stop: &pod.Stop{Reason: pod.StopEvicted}}},
		{asking("late", "", "1m"), nil, fleet.Verdict{Reject: true, Reason: "NodeShutdown", Message: "no pods now"}},
	} {
		if diff := cmp.Diff(step.want, s.Admit(step.pod, step.others)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.pod.Name, diff)
		}
	}
	want := events{"b Warning OutOfcpu: " + short,
		"critical Normal OutOfcpu: waiting for pod default/a to end: " + short,
		"late Warning NodeShutdown: no pods now"}
	if diff := cmp.Diff(want, s.events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	preempted := slices.DeleteFunc(s.did(), func(c string) bool { return !strings.HasPrefix(c, "preempt ") })
	if diff := cmp.Diff([]string{"preempt a"}, preempted); diff != "" {
		t.Errorf("preempted (-want +got):\n%s", diff)
	}
	families, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counted := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			counted[f.GetName()+" "+m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
		}
	}
	if diff := cmp.Diff(map[string]float64{"kubelet_admission_rejections_total OutOfcpu": 1,
		"kubelet_admission_rejections_total NodeShutdown": 1, "kubelet_preemptions cpu": 1}, counted); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
}

// The stages run in their order, and a rejection, a wait and an admission each leave the ledger as they should.
func TestAdmitRunsTheStagesInOrder(t *testing.T) {
	holder := fleet.Other{Pod: asking("a", "", "700m")}
	ending := fleet.Other{Pod: asking("b", "", "200m"), Terminating: true}
	for name, c := range map[string]struct {
		pod    *pod.Pod
		others []fleet.Other
		prior  corev1.PodStatus
		book   error
		want   []string
	}{
		"admitted": {asking("p", "", "100m"), []fleet.Other{holder, ending}, corev1.PodStatus{}, nil,
			[]string{"look", "drop p", "book p beside [a b]", "admitted p"}},
		"not written to disk": {asking("p", "", "100m"), nil, corev1.PodStatus{}, errors.New("disk full"),
			[]string{"look", "drop p", "book p beside []"}},
		"rejected": {asking("p", "", "500m"), []fleet.Other{holder}, corev1.PodStatus{}, nil,
			[]string{"look", "drop p", "count OutOfcpu", "free p"}},
		"critical": {asking("p", "system-node-critical", "500m"), []fleet.Other{holder, ending}, corev1.PodStatus{},
			nil, []string{"look", "preempt a", "keep for p beside []"}},
		"the node's labels may be old": {picky(), nil, corev1.PodStatus{}, nil,
			[]string{"look", "confirm labels", "drop picky"}},
		"the machine shuts down": {asking("late", "", "1m"), nil, corev1.PodStatus{}, nil,
			[]string{"look", "drop late", "count NodeShutdown", "free late"}},
		"half evicted by an earlier agent": {asking("half", "", "7"), nil, corev1.PodStatus{}, nil,
			[]string{"look", "drop half", "book half beside []", "admitted half"}},
		"ended before this agent": {asking("p", "", "7"), nil, corev1.PodStatus{Phase: corev1.PodSucceeded}, nil,
			[]string{"look", "drop p", "free p", "admitted p"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStation(t)
			s.kept[c.pod.UID], s.bookErr = c.prior, c.book
			v := s.Admit(c.pod, c.others)
			want := slices.Concat([]string{"hold devices"}, c.want, []string{"release devices"})
			if diff := cmp.Diff(want, s.did()); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
			waits := fleet.Verdict{Reason: "UnexpectedAdmissionError", Message: "disk full", Again: time.Unix(1005, 0)}
			if c.book != nil && v != waits {
				t.Errorf("the verdict is %+v", v)
			}
		})
	}
}

// picky is a pod of the API server whose node selector does not match the labels that the agent knows.
func picky() *pod.Pod {
	p := asking("picky", "", "1m")
	p.Spec.NodeSelector = map[string]string{"disk": "ssd"}
	return p
}

// Allocate uses the rules to find what the node lacks for a resize, for the pod alone and beside other pods.
func TestAllocateAsksTheRules(t *testing.T) {
	s := newStation(t)
	s.Gate.Allocate(asking("p", "", "600m"), []fleet.Other{{Pod: asking("a", "", "700m")}})
	want := []string{`allocate p: "" alone, "Node didn't have enough resource: cpu, requested: 600, used: 700, ` +
		`capacity: 1000" beside`}
	if diff := cmp.Diff(want, s.did()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// The list that --print-admission prints needs no agent.
func TestStagesAreNamed(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range (&Gate{}).Stages() {
		if s.Name == "" || s.Does == "" || seen[s.Name] {
			t.Errorf("stage %q: %q", s.Name, s.Does)
		}
		seen[s.Name] = true
	}
}

// A pod that turns out not to fit after it was admitted ends, with an event and a count.
func TestReject(t *testing.T) {
	s := newStation(t)
	rejecter := Rejecter{Counts: s.Counts, Events: &s.events, Pods: s}
	rejecter.Reject(asking("a", "", "1m").Pod, "VolumeAttachmentLimitExceeded", "no room")
	if diff := cmp.Diff([]string{"reject a: VolumeAttachmentLimitExceeded: no room"}, s.did()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(events{"a Warning VolumeAttachmentLimitExceeded: no room"}, s.events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// A pod that ended before this agent is only cleaned up after, and a rejection that an earlier agent has reported is
// not reported again.
func TestAdmitAfterARestart(t *testing.T) {
	s := newStation(t)
	s.kept["a"] = corev1.PodStatus{Phase: corev1.PodSucceeded}
	if diff := cmp.Diff(fleet.Verdict{Admit: true, Ended: true}, s.Admit(asking("a", "", "7"), nil)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	verdict := s.Admit(asking("b", "", "7"), nil)
	s.last["c"] = corev1.PodStatus{Phase: corev1.PodFailed, Reason: verdict.Reason,
		Message: "Pod was rejected: " + verdict.Message}
	if diff := cmp.Diff(verdict, s.Admit(asking("c", "", "7"), nil)); diff != "" || len(s.events) != 1 {
		t.Errorf("events %v (-want +got):\n%s", s.events, diff)
	}
}
