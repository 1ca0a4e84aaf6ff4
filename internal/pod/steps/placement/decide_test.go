package placement

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/node/resource"
	"github.com/berth-run/berth/internal/node/resource/memory"
	"github.com/berth-run/berth/internal/node/resource/topology"
)

// aPod has an init container, the app containers a and b, and an ephemeral container.
func aPod(uid types.UID) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: string(uid), UID: uid},
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "init"}},
			Containers:     []corev1.Container{{Name: "a"}, {Name: "b"}},
			EphemeralContainers: []corev1.EphemeralContainer{
				{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}},
		},
	}
}

func TestPlaceOf(t *testing.T) {
	blocks := func(nodes ...int) []memory.Block {
		return []memory.Block{{Nodes: topology.Of(nodes...), Resource: corev1.ResourceMemory, Size: 1}}
	}
	cpus := func(ids ...int) resource.Holding { return resource.Holding{CPUs: cpuset.New(ids...)} }
	for _, test := range []struct {
		name   string
		given  resource.Allocation
		shared cpuset.CPUSet
		want   map[string]place
	}{
		{"nothing is given away", resource.Allocation{}, cpuset.New(), map[string]place{"init": {}, "a": {}, "b": {}}},
		{
			"one has its own, the others share",
			resource.Allocation{Containers: map[string]resource.Holding{"a": cpus(2, 3)}}, cpuset.New(0, 1, 4),
			map[string]place{"init": {cpus: "0-1,4"}, "a": {cpus: "2-3"}, "b": {cpus: "0-1,4"}},
		},
		{
			"memory of two nodes",
			resource.Allocation{
				Containers: map[string]resource.Holding{"a": {Memory: append(blocks(2), blocks(0, 2)...)}}},
			cpuset.New(),
			map[string]place{"init": {}, "a": {mems: "0,2"}, "b": {}},
		},
		{
			"the pod has CPUs, of which one container has some: the other gets what is left, and what an init " +
				"container had",
			resource.Allocation{Containers: map[string]resource.Holding{"init": cpus(4, 5), "a": cpus(4)},
				Pod: resource.Holding{CPUs: cpuset.New(4, 5, 6), Memory: blocks(1)}},
			cpuset.New(0, 1),
			map[string]place{"init": {cpus: "4-5", mems: "1"}, "a": {cpus: "4", mems: "1"},
				"b": {cpus: "5-6", mems: "1"}},
		},
		{
			"the pod's CPUs are all somebody's own: an ephemeral container runs on all of them",
			resource.Allocation{Containers: map[string]resource.Holding{"a": cpus(4, 5), "b": cpus(6)},
				Pod: cpus(4, 5, 6)}, cpuset.New(0, 1),
			map[string]place{"a": {cpus: "4-5"}, "b": {cpus: "6"}, "debug": {cpus: "4-6"}},
		},
		{
			"an ephemeral container beside one that shares its pod's CPUs",
			resource.Allocation{Containers: map[string]resource.Holding{"a": cpus(4, 5)}, Pod: cpus(4, 5, 6)},
			cpuset.New(0, 1),
			map[string]place{"b": {cpus: "6"}, "debug": {cpus: "6"}},
		},
		{
			"an ephemeral container of a pod whose containers have CPUs",
			resource.Allocation{Containers: map[string]resource.Holding{"a": cpus(4, 5), "b": cpus(6)}},
			cpuset.New(0, 1), map[string]place{"debug": {cpus: "0-1"}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := map[string]place{}
			for name := range test.want {
				got[name] = placeOf(aPod("one"), name, test.given, test.shared)
			}
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(place{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// due gives the named containers a request and limit of one CPU. If whole, it gives the pod one of its own too.
func due(whole bool, names ...string) *corev1.Pod {
	one := corev1.ResourceList{corev1.ResourceCPU: resourceapi.MustParse("1"),
		corev1.ResourceMemory: resourceapi.MustParse("1Mi")}
	p := aPod("one")
	for _, c := range pod.Containers(p) {
		if slices.Contains(names, c.Name) {
			c.Resources = corev1.ResourceRequirements{Requests: one, Limits: one}
		}
	}
	if whole {
		three := corev1.ResourceList{corev1.ResourceCPU: resourceapi.MustParse("3"),
			corev1.ResourceMemory: resourceapi.MustParse("3Mi")}
		p.Spec.Resources = &corev1.ResourceRequirements{Requests: three, Limits: three}
	}
	return p
}

func TestUnthrottled(t *testing.T) {
	own := func(names ...string) map[string]resource.Holding {
		all := map[string]resource.Holding{}
		for _, name := range names {
			all[name] = resource.Holding{CPUs: cpuset.New(1)}
		}
		return all
	}
	bubble := resource.Holding{CPUs: cpuset.New(1, 2, 3)}
	for _, test := range []struct {
		name       string
		pod        *corev1.Pod
		given      resource.Allocation
		whole      bool
		containers []string
	}{
		{"nothing", due(false, "init", "a", "b"), resource.Allocation{}, false, nil},
		{"memory only", due(false, "init", "a", "b"),
			resource.Allocation{Containers: map[string]resource.Holding{"a": {Memory: []memory.Block{{}}}}}, false,
			nil},
		{"one container", due(false, "init", "a", "b"), resource.Allocation{Containers: own("a")}, true, []string{"a"}},
		{"an init container", due(false, "init", "a", "b"), resource.Allocation{Containers: own("init")}, true,
			[]string{"init"}},
		{"one container beside one that shares the limit of its pod", due(true, "a"),
			resource.Allocation{Containers: own("a")}, false, []string{"a"}},
		{"one container of a pod with CPUs that shares the rest", due(true, "a"),
			resource.Allocation{Containers: own("a"), Pod: bubble}, false, []string{"a"}},
		{"all containers of a pod with CPUs", due(true, "init", "a", "b"),
			resource.Allocation{Containers: own("init", "a", "b"), Pod: bubble}, true, []string{"init", "a", "b"}},
		{"all that stay, beside an init container that shares", due(true, "a", "b"),
			resource.Allocation{Containers: own("init", "a", "b"), Pod: bubble}, true, []string{"a", "b"}},
		{"an init container alone", due(true, "init"), resource.Allocation{Containers: own("init"), Pod: bubble}, false,
			[]string{"init"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var containers []string
			for _, c := range pod.Containers(test.pod) {
				if unthrottled(test.pod, c, test.given) {
					containers = append(containers, c.Name)
				}
			}
			if whole := podUnthrottled(test.pod, test.given); whole != test.whole {
				t.Errorf("the pod: got %v, want %v", whole, test.whole)
			}
			if diff := cmp.Diff(test.containers, containers); diff != "" {
				t.Errorf("containers (-want +got):\n%s", diff)
			}
		})
	}
}
