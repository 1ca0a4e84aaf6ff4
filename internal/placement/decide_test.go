package placement

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/resource"
	"github.com/berth-run/berth/internal/resource/memory"
	"github.com/berth-run/berth/internal/resource/topology"
)

// aPod has an init container and the containers a and b.
func aPod(uid types.UID) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: string(uid), UID: uid},
		Spec:       corev1.PodSpec{InitContainers: []corev1.Container{{Name: "init"}}, Containers: []corev1.Container{{Name: "a"}, {Name: "b"}}},
	}
}

func TestPlaceOf(t *testing.T) {
	blocks := func(nodes ...int) []memory.Block {
		return []memory.Block{{Nodes: topology.Of(nodes...), Resource: corev1.ResourceMemory, Size: 1}}
	}
	cpus := func(ids ...int) resource.Given { return resource.Given{CPUs: cpuset.New(ids...)} }
	for _, test := range []struct {
		name   string
		given  resource.Allocation
		shared cpuset.CPUSet
		want   map[string]place
	}{
		{"nothing is given away", resource.Allocation{}, cpuset.New(), map[string]place{"init": {}, "a": {}, "b": {}}},
		{
			"one has its own, the others share", resource.Allocation{Containers: map[string]resource.Given{"a": cpus(2, 3)}}, cpuset.New(0, 1, 4),
			map[string]place{"init": {cpus: "0-1,4"}, "a": {cpus: "2-3"}, "b": {cpus: "0-1,4"}},
		},
		{
			"memory of two nodes", resource.Allocation{Containers: map[string]resource.Given{"a": {Memory: append(blocks(2), blocks(0, 2)...)}}}, cpuset.New(),
			map[string]place{"init": {}, "a": {mems: "0,2"}, "b": {}},
		},
		{
			"the pod has CPUs, of which one container has some: the other gets what is left, and what an init container had",
			resource.Allocation{Containers: map[string]resource.Given{"init": cpus(4, 5), "a": cpus(4)}, Pod: resource.Given{CPUs: cpuset.New(4, 5, 6), Memory: blocks(1)}},
			cpuset.New(0, 1),
			map[string]place{"init": {cpus: "4-5", mems: "1"}, "a": {cpus: "4", mems: "1"}, "b": {cpus: "5-6", mems: "1"}},
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

func TestUnthrottled(t *testing.T) {
	own := resource.Given{CPUs: cpuset.New(1)}
	for _, test := range []struct {
		name  string
		given resource.Allocation
		want  bool
	}{
		{"nothing", resource.Allocation{}, false},
		{"memory only", resource.Allocation{Containers: map[string]resource.Given{"a": {Memory: []memory.Block{{}}}}}, false},
		{"one container", resource.Allocation{Containers: map[string]resource.Given{"a": own}}, true},
		{"one container of a pod that shares the rest", resource.Allocation{Containers: map[string]resource.Given{"a": own}, Pod: own}, false},
		{"all containers of a pod with CPUs", resource.Allocation{Containers: map[string]resource.Given{"init": own, "a": own, "b": own}, Pod: own}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := podUnthrottled(aPod("one"), test.given); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
