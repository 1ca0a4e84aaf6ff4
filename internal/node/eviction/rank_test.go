package eviction

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func aPod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
}

func names(all []Candidate) []string {
	list := []string{}
	for _, c := range all {
		list = append(list, c.Pod.Name)
	}
	return list
}

func TestRank(t *testing.T) {
	born := func(c Candidate, minutes int) Candidate {
		c.Pod.CreationTimestamp = metav1.Unix(int64(minutes)*60, 0)
		return c
	}
	for name, test := range map[string]struct {
		resource corev1.ResourceName
		pods     []Candidate
		want     []string
	}{
		"critical pods stay": {
			resource: corev1.ResourceMemory,
			pods: []Candidate{{Pod: aPod("a"), Known: true, Usage: 9, Critical: true},
				{Pod: aPod("b"), Known: true}},
			want: []string{"b"}},
		"unknown, above the request, priority, use above the request": {
			resource: corev1.ResourceMemory,
			pods: []Candidate{
				{Pod: aPod("within"), Known: true, Usage: 900, Request: 900},
				{Pod: aPod("within-low"), Known: true, Usage: 1, Request: 2, Priority: -5},
				{Pod: aPod("above-high"), Known: true, Usage: 1000, Request: 1, Priority: 7},
				{Pod: aPod("above-little"), Known: true, Usage: 500, Request: 499},
				{Pod: aPod("above-much"), Known: true, Usage: 200, Request: 100},
				{Pod: aPod("unknown"), Priority: 100},
			},
			want: []string{"unknown", "above-much", "above-little", "above-high", "within-low", "within"}},
		"processes: priority and use only": {
			resource: PIDs,
			pods: []Candidate{
				{Pod: aPod("few"), Known: true, Usage: 3}, {Pod: aPod("many"), Known: true, Usage: 30},
				{Pod: aPod("low"), Known: true, Usage: 1, Priority: -1}, {Pod: aPod("unknown")},
			},
			want: []string{"low", "unknown", "many", "few"}},
		"inodes: minus the request of storage": {
			resource: Inodes,
			pods: []Candidate{
				{Pod: aPod("a"), Known: true, Usage: 100, Storage: 60}, {Pod: aPod("b"), Known: true, Usage: 50},
				{Pod: aPod("none"), Known: true},
			},
			want: []string{"b", "a", "none"}},
		"alike: the youngest first": {
			resource: corev1.ResourceMemory,
			pods: []Candidate{born(Candidate{Pod: aPod("old"), Known: true, Usage: 1}, 1),
				born(Candidate{Pod: aPod("young-b"), Known: true, Usage: 1}, 2),
				born(Candidate{Pod: aPod("young-a"), Known: true, Usage: 1}, 2)},
			want: []string{"young-a", "young-b", "old"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, names(Rank(test.resource, test.pods))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestVictims(t *testing.T) {
	used := func(name string, usage int64) Candidate { return Candidate{Pod: aPod(name), Known: true, Usage: usage} }
	for name, test := range map[string]struct {
		ranked             []Candidate
		shortfall, freeing int64
		want               []string
	}{
		"one is enough": {ranked: []Candidate{used("a", 10), used("b", 10)}, shortfall: 10,
			want: []string{"a"}},
		"two": {ranked: []Candidate{used("a", 10), used("b", 10)}, shortfall: 11,
			want: []string{"a", "b"}},
		"what ends already": {ranked: []Candidate{used("a", 10)}, shortfall: 10, freeing: 10, want: []string{}},
		"some ends already": {ranked: []Candidate{used("a", 10), used("b", 1)}, shortfall: 12, freeing: 2,
			want: []string{"a"}},
		"nothing to free": {ranked: []Candidate{used("a", 0), used("b", 5)}, shortfall: 5, want: []string{"b"}},
		"unknown: look again": {ranked: []Candidate{{Pod: aPod("a")}, used("b", 5)}, shortfall: 5,
			want: []string{"a"}},
		"all are not enough": {ranked: []Candidate{used("a", 1), used("b", 1)}, shortfall: 5,
			want: []string{"a", "b"}},
		"nobody is left to end":  {shortfall: 5, want: []string{}},
		"all of what is needed ": {ranked: []Candidate{used("a", 100)}, shortfall: 1, want: []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, names(Victims(test.ranked, test.shortfall, test.freeing))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestVictimsOfRandomNodes checks the victims of random nodes and pods. They cover the shortfall if all pods together
// do, and not without the last victim. No pod that ranks before the last victim and frees something is left out.
func TestVictimsOfRandomNodes(t *testing.T) {
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 0))
		var pods []Candidate
		var total int64
		for i := range random.IntN(20) {
			c := Candidate{Pod: aPod(fmt.Sprint("p", i)), Known: true, Usage: random.Int64N(100),
				Request: random.Int64N(100), Priority: random.Int32N(3), Critical: random.IntN(8) == 0}
			pods = append(pods, c)
			if !c.Critical {
				total += c.Usage
			}
		}
		for _, resource := range []corev1.ResourceName{corev1.ResourceMemory, PIDs, Inodes} {
			ranked := Rank(resource, pods)
			shortfall, freeing := 1+random.Int64N(600), random.Int64N(50)
			victims := Victims(ranked, shortfall, freeing)
			sum, last := freeing, int64(0)
			for _, v := range victims {
				if v.Critical {
					t.Fatalf("seed %d: %s is critical", seed, v.Pod.Name)
				}
				sum, last = sum+v.Usage, v.Usage
			}
			if covered := sum >= shortfall; covered != (total+freeing >= shortfall) {
				t.Fatalf("seed %d: victims free %d of %d", seed, sum, shortfall)
			}
			if len(victims) > 0 && sum-last >= shortfall {
				t.Fatalf("seed %d: %d without the last victim cover %d", seed, sum-last, shortfall)
			}
			next := 0
			for _, c := range ranked {
				if next < len(victims) && c.Pod == victims[next].Pod {
					next++
				} else if next < len(victims) && c.Usage > 0 {
					t.Fatalf("seed %d: %s ranks before %s and stays", seed, c.Pod.Name, victims[next].Pod.Name)
				}
			}
		}
	}
}

func TestMessage(t *testing.T) {
	requests := func(memory string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceMemory: resource.MustParse(memory)}}
	}
	p := aPod("web")
	p.Spec.Containers = []corev1.Container{{Name: "app", Resources: requests("64Mi")}, {Name: "log"},
		{Name: "small", Resources: requests("1Gi")}}
	p.Spec.InitContainers = []corev1.Container{{Name: "proxy", Resources: requests("1Mi")}}
	level := p.DeepCopy()
	whole := requests("100Mi")
	level.Spec.Resources = &whole
	memory := Crossing{Threshold: Threshold{Signal: MemoryAvailable, Value: Amount{Quantity: 100 << 20, text: "100Mi"}},
		Seen: Observation{Available: 80 << 20, Capacity: 1 << 30, At: time.Unix(0, 0)}}
	inodes := Crossing{Threshold: Threshold{Signal: NodeFsInodesFree, Value: Amount{Share: 0.05}},
		Seen: Observation{Available: 7, Capacity: 1000}}
	for name, test := range map[string]struct {
		pod         *corev1.Pod
		crossing    Crossing
		used        Usage
		want        string
		annotations map[string]string
	}{
		"memory": {
			pod: p, crossing: memory,
			used: Usage{Pod: new(int64(200 << 20)),
				Containers: []ContainerUsage{{"app", 128 << 20}, {"log", 5}, {"small", 1 << 20},
					{"proxy", 2 << 20}, {"debugger", 1 << 30}}},
			want: "The node was low on resource: memory. Threshold quantity: 100Mi, available: 80Mi. " +
				"Container app was using 128Mi, request is 64Mi, has larger consumption of memory. " +
				"Container log was using 5, request is 0, has larger consumption of memory. " +
				"Container proxy was using 2Mi, request is 1Mi, has larger consumption of memory. ",
			annotations: map[string]string{StarvedResource: "memory", OffendingContainers: "app,log,proxy",
				OffendingContainersUsage: "128Mi,5,2Mi"}},
		"requests of the pod": {
			pod: level, crossing: memory, used: Usage{Pod: new(int64(200 << 20))},
			want: "The node was low on resource: memory. Threshold quantity: 100Mi, available: 80Mi. " +
				"Pod web was using 200Mi, request is 100Mi, has larger consumption of memory. ",
			annotations: map[string]string{StarvedResource: "memory", OffendingContainers: "",
				OffendingContainersUsage: "", OffendingPod: "web", OffendingPodUsage: "200Mi"}},
		"inodes": {
			pod: p, crossing: inodes,
			want: "The node was low on resource: inodes. Threshold quantity: 50, available: 7. ",
			annotations: map[string]string{StarvedResource: "inodes", OffendingContainers: "",
				OffendingContainersUsage: ""}},
	} {
		t.Run(name, func(t *testing.T) {
			got, annotations := Message(test.pod, test.crossing, test.used)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(test.annotations, annotations); diff != "" {
				t.Error(diff)
			}
		})
	}
}
