package gate

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace/noop"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/node"
	given "github.com/berth-run/berth/internal/node/resource"
	"github.com/berth-run/berth/internal/node/resource/memory"
	"github.com/berth-run/berth/internal/node/resource/topology"
	"github.com/berth-run/berth/internal/pod/admission"
	"github.com/berth-run/berth/internal/pod/fleet"
	"github.com/berth-run/berth/internal/pod/source/manifest"
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

// bell notes what is told.
type bell []string

func (b *bell) Event(ref corev1.ObjectReference, kind, reason, format string, args ...any) {
	*b = append(*b, ref.Name+" "+kind+" "+reason+": "+fmt.Sprintf(format, args...))
}

// station is a gate of a node with one CPU.
type station struct {
	*Gate
	registry  *prometheus.Registry
	told      bell
	preempted []types.UID
	kept      map[types.UID]corev1.PodStatus
}

func newStation(t *testing.T) *station {
	s := &station{registry: prometheus.NewRegistry(), kept: map[types.UID]corev1.PodStatus{}}
	last := func(uid types.UID) corev1.PodStatus { return s.kept[uid] }
	s.Gate = New(Options{
		Refuses: func(p *pod.Pod) (fleet.Verdict, bool) {
			return fleet.Verdict{Reject: true, Reason: "NodeShutdown", Message: "no pods now"}, p.Name == "late"
		},
		Input: func(p *pod.Pod) admission.In {
			facts := node.Facts{Name: "node1",
				Allocatable: corev1.ResourceList{"cpu": resource.MustParse("1"), "pods": resource.MustParse("9")}}
			return admission.In{Pod: p.Pod, Node: facts, Config: admission.Config{Standalone: true}}
		},
		Observed: func(types.UID) *pod.Observed { return nil }, Status: last, Kept: last,
		Preempt:  func(uid types.UID) { s.preempted = append(s.preempted, uid) },
		Recorder: timeline.NewRecorder(timeline.RecorderOptions{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}),
		Provider: noop.NewTracerProvider(), Metrics: s.registry, Events: &s.told,
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

// What is answered is told and counted once, and what is to be preempted is.
func TestAdmit(t *testing.T) {
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
		{asking("late", "", "1m"), nil, fleet.Verdict{Reject: true, Reason: "NodeShutdown", Message: "no pods now"}},
	} {
		if diff := cmp.Diff(step.want, s.Admit(step.pod, step.others)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.pod.Name, diff)
		}
	}
	want := bell{"b Warning OutOfcpu: " + short, "critical Normal OutOfcpu: waiting for pod default/a to end: " + short,
		"late Warning NodeShutdown: no pods now"}
	if diff := cmp.Diff(want, s.told); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]types.UID{"a"}, s.preempted); diff != "" {
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

// A pod that turns out not to fit after it was admitted ends, and is told and counted.
func TestReject(t *testing.T) {
	s := newStation(t)
	var stopped pod.Stop
	s.Stop = func(_ types.UID, stop pod.Stop) { stopped = stop }
	s.Reject(asking("a", "", "1m").Pod, "VolumeAttachmentLimitExceeded", "no room")
	stopped.At = time.Time{}
	want := pod.Stop{Reason: "VolumeAttachmentLimitExceeded", Message: "Pod was rejected: no room",
		Grace: new(time.Duration(0))}
	if diff := cmp.Diff(want, stopped); diff != "" {
		t.Errorf("stopped (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(bell{"a Warning VolumeAttachmentLimitExceeded: no room"}, s.told); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}

// A pod that ended before this agent is not asked about, and one that an earlier
// agent has rejected for the same is not told again.
func TestAfterARestart(t *testing.T) {
	s := newStation(t)
	s.kept["a"] = corev1.PodStatus{Phase: corev1.PodSucceeded}
	if diff := cmp.Diff(fleet.Verdict{Admit: true, Ended: true}, s.Admit(asking("a", "", "7"), nil)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	verdict := s.Admit(asking("b", "", "7"), nil)
	s.Status = func(types.UID) corev1.PodStatus {
		return corev1.PodStatus{Phase: corev1.PodFailed, Reason: verdict.Reason,
			Message: "Pod was rejected: " + verdict.Message}
	}
	if diff := cmp.Diff(verdict, s.Admit(asking("b", "", "7"), nil)); diff != "" || len(s.told) != 1 {
		t.Errorf("told %v (-want +got):\n%s", s.told, diff)
	}
}

// Manifests are asked about in the place of the pods that they stand for.
func TestExplain(t *testing.T) {
	static := asking("web-node1", "", "600m")
	static.Source, static.Annotations = pod.SourceFile, map[string]string{pod.AnnotationConfigSource: "file"}
	holding := given.Allocation{Containers: map[string]given.Holding{"app": {CPUs: cpuset.New(2, 3),
		Devices: map[corev1.ResourceName][]string{"example.com/gpu": {"g1"}},
		Memory:  []memory.Block{{Nodes: topology.Of(1), Resource: "memory", Size: 7}}}}}
	x := Explainer{
		Node: "node1", Others: func() []fleet.Other { return []fleet.Other{{Pod: static}} },
		Input: func(p *pod.Pod) admission.In {
			in := newStation(t).Input(p)
			in.RuntimeClass = func(string) (*nodev1.RuntimeClass, error) { return nil, errors.New("none") }
			in.Allot = func([]types.UID) (given.Allocation, error) { return holding, nil }
			return in
		},
	}
	objects, err := manifest.Decode([]byte(`
{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: app, image: a, resources: {requests: {cpu: 900m}}}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: new}, spec: {runtimeClassName: heavy, containers: [{name: app, image: a, resources: {requests: {cpu: 400m}}}]}}
---
{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: heavy}, handler: h, overhead: {podFixed: {cpu: 1m}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: critical}, spec: {priority: 2000000000, containers: [{name: app, image: a, resources: {requests: {cpu: 900m}}}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: bad}, spec: {containers: [{name: app}]}}
`), "-")
	if err != nil {
		t.Fatal(err)
	}
	gets := []api.Given{{Container: "app", CPUs: "2-3", Devices: map[string][]string{"example.com/gpu": {"g1"}},
		Memory: []api.GivenMemory{{Nodes: []int{1}, Resource: "memory", Bytes: 7}}}}
	want := []api.Explanation{
		{Namespace: "default", Name: "web", Answer: api.Answer{Verdict: "admitted"}, Replaces: "default/web-node1",
			Gets: gets},
		{Namespace: "default", Name: "new",
			Answer: api.Answer{Verdict: "rejected", Reason: "OutOfcpu",
				Message: "Node didn't have enough resource: cpu, requested: 401, used: 600, capacity: 1000"}},
		{Namespace: "default", Name: "critical", Preempt: []string{"default/web-node1"},
			Answer: api.Answer{Verdict: "not yet", Reason: "OutOfcpu",
				Message: "waiting for pod default/web-node1 to end: Node didn't have enough resource: cpu, " +
					"requested: 900, used: 600, capacity: 1000"}},
		{Namespace: "default", Name: "bad",
			Answer: api.Answer{Verdict: "invalid", Reason: "FailedValidation",
				Message: "- (document 5): pod default/bad: line 10: spec.containers[0].image: Required value"}},
	}
	got := x.Explain(objects)
	for i, e := range got {
		if asked := len(e.Rules) == len(admission.Rules()); asked != (e.Verdict != api.Invalid) {
			t.Errorf("%s: %d rules", e.Name, len(e.Rules))
		}
		got[i].Rules = nil
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
