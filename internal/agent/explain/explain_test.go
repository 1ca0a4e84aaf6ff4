package explain

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/node"
	resources "github.com/berth-run/berth/internal/node/resource"
	"github.com/berth-run/berth/internal/node/resource/memory"
	"github.com/berth-run/berth/internal/node/resource/topology"
	"github.com/berth-run/berth/internal/pod/admission"
	"github.com/berth-run/berth/internal/pod/fleet"
	"github.com/berth-run/berth/internal/pod/source/manifest"
)

// input returns the input of the rules on a node with one CPU.
func input(p *pod.Pod) admission.In {
	facts := node.Facts{Name: "node1",
		Allocatable: corev1.ResourceList{"cpu": resource.MustParse("1"), "pods": resource.MustParse("9")}}
	return admission.In{Pod: p.Pod, Node: facts, Config: admission.Config{Standalone: true}}
}

func asking(name, class, cpu string) *pod.Pod {
	return &pod.Pod{Pod: &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
		Spec: corev1.PodSpec{PriorityClassName: class,
			Containers: []corev1.Container{{Name: "app", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu)}}}}},
	}}
}

// others are the pods that hold resources.
type others []fleet.Other

func (o others) Holders() []fleet.Other { return o }
func (others) Reserved() []fleet.Other  { return nil }

// inputs are the inputs of admission on a node without runtime classes. Each pod gets the same resources for itself.
type inputs struct{ holding resources.Allocation }

func (i inputs) Of(p *pod.Pod) admission.In {
	in := input(p)
	in.RuntimeClass = func(string) (*nodev1.RuntimeClass, error) { return nil, errors.New("none") }
	in.Allot = func([]types.UID) (resources.Allocation, error) { return i.holding, nil }
	return in
}

// A manifest of a pod that runs already is explained without that pod, since it would replace it.
func TestExplain(t *testing.T) {
	static := asking("web-node1", "", "600m")
	static.Source, static.Annotations = pod.SourceFile, map[string]string{pod.AnnotationConfigSource: "file"}
	holding := resources.Allocation{Containers: map[string]resources.Holding{"app": {CPUs: cpuset.New(2, 3),
		Devices: map[corev1.ResourceName][]string{"example.com/gpu": {"g1"}},
		Memory:  []memory.Block{{Nodes: topology.Of(1), Resource: "memory", Size: 7}}}}}
	x := Explainer{
		Node: "node1", Fleet: others{{Pod: static}}, Inputs: inputs{holding},
	}
	objects, err := manifest.Decode([]byte(`
{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: app, image: a, resources: {requests: `+
		`{cpu: 900m}}}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: new}, spec: {runtimeClassName: heavy, containers: [{name: app, image: `+
		`a, resources: {requests: {cpu: 400m}}}]}}
---
{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: heavy}, handler: h, overhead: {podFixed: {cpu: 1m}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: critical}, spec: {priority: 2000000000, containers: [{name: app, `+
		`image: a, resources: {requests: {cpu: 900m}}}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: bad}, spec: {containers: [{name: app}]}}
`), "-")
	if err != nil {
		t.Fatal(err)
	}
	gets := []api.Grant{{Container: "app", CPUs: "2-3", Devices: map[string][]string{"example.com/gpu": {"g1"}},
		Memory: []api.MemoryGrant{{Nodes: []int{1}, Resource: "memory", Bytes: 7}}}}
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
