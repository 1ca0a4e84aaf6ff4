package cpu

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/node/resource/topology"
)

func amounts(cpu, memory string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for name, amount := range map[corev1.ResourceName]string{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory} {
		if amount != "" {
			list[name] = resource.MustParse(amount)
		}
	}
	return list
}

// container has requests that equal its limits.
func container(name, cpu string) corev1.Container {
	return corev1.Container{Name: name,
		Resources: corev1.ResourceRequirements{Requests: amounts(cpu, "1Gi"), Limits: amounts(cpu, "1Gi")}}
}

// burstable has requests but no limits.
func burstable(name, cpu string) corev1.Container {
	return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: amounts(cpu, "")}}
}

func sidecar(c corev1.Container) corev1.Container {
	always := corev1.ContainerRestartPolicyAlways
	c.RestartPolicy = &always
	return c
}

func podOf(init []corev1.Container, apps ...corev1.Container) *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{InitContainers: init, Containers: apps}}
}

// wholePod adds pod-level resources to a pod.
func wholePod(cpu string, p *corev1.Pod) *corev1.Pod {
	p.Spec.Resources = &corev1.ResourceRequirements{Requests: amounts(cpu, "8Gi"), Limits: amounts(cpu, "8Gi")}
	return p
}

func TestExclusive(t *testing.T) {
	type due struct {
		Containers []int
		Pod        int
	}
	inits := []corev1.Container{container("a", "4"), sidecar(container("b", "1")), container("c", "5")}
	tests := []struct {
		name string
		pod  *corev1.Pod
		want due
	}{
		{"whole CPUs", podOf(nil, container("a", "2"), container("b", "1")), due{[]int{2, 1}, 3}},
		{"in thousandths", podOf(nil, container("a", "2000m")), due{[]int{2}, 2}},
		{"a part of a CPU", podOf(nil, container("a", "1500m"), container("b", "1")), due{[]int{0, 1}, 1}},
		{"not guaranteed", podOf(nil, burstable("a", "2")), due{[]int{0}, 0}},
		{"not guaranteed as a whole", podOf(nil, container("a", "2"), burstable("b", "1")), due{[]int{0, 0}, 0}},
		{"an init container needs the most", podOf(inits, container("d", "2")), due{[]int{4, 1, 5, 2}, 6}},
		{"lasting containers need the most", podOf(inits, container("d", "8")), due{[]int{4, 1, 5, 8}, 9}},
		{"pod-level", wholePod("8", podOf(nil, container("a", "2"), burstable("b", "1"))), due{[]int{2, 0}, 8}},
		{"pod-level, a part of a CPU", wholePod("7500m", podOf(nil, container("a", "2"))), due{[]int{2}, 0}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := due{Pod: ExclusivePod(test.pod)}
			for _, c := range pod.Containers(test.pod) {
				got.Containers = append(got.Containers, Exclusive(test.pod, c.Container))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Later containers reuse the CPUs of init containers, but not the CPUs of sidecars.
func TestReusable(t *testing.T) {
	p := podOf([]corev1.Container{container("a", "4"), sidecar(container("b", "2")), container("c", "2")},
		container("d", "2"), container("e", "2"))
	pool := Pool{Machine: build(1, 1, 1, 8, 2), Reserved: cpuset.New(0, 8)}
	reusable, got := cpuset.New(), map[string]string{}
	for _, c := range pod.Containers(p) {
		cpus, err := Allocate(pool, Exclusive(p, c.Container), reusable, 0)
		if err != nil {
			t.Fatal(err)
		}
		got[c.Name] = cpus.String()
		pool.Held = pool.Held.Union(cpus)
		reusable = Reusable(reusable, c, cpus)
	}
	want := map[string]string{"a": "1-2,9-10", "b": "1,9", "c": "2,10", "d": "2,10", "e": "3,11"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestAllocateBubble(t *testing.T) {
	type bubble struct {
		CPUs, Shared    string
		Containers      map[string]string
		Reason, Message string
	}
	tests := []struct {
		name    string
		options Options
		pod     *corev1.Pod
		on      topology.Nodes
		want    bubble
	}{
		{"no pod-level resources", Options{}, podOf(nil, container("a", "2")), 0, bubble{}},
		{"not a whole number", Options{}, wholePod("1500m", podOf(nil, burstable("a", "1"))), 0, bubble{}},
		{"shared inside the pod", Options{},
			wholePod("4", podOf(nil, container("a", "2"), burstable("b", "1"), corev1.Container{Name: "c"})),
			topology.Of(1),
			bubble{CPUs: "4-5,12-13", Shared: "5,13",
				Containers: map[string]string{"a": "4,12", "b": "5,13", "c": "5,13"}}},
		{"init containers run on all CPUs that no sidecar holds", Options{},
			wholePod("4",
				podOf([]corev1.Container{burstable("a", "1"), sidecar(container("b", "2")), burstable("c", "1"),
					container("d", "2"), sidecar(burstable("e", "1"))}, container("f", "1"))), topology.Of(1),
			bubble{CPUs: "4-5,12-13", Shared: "13",
				Containers: map[string]string{"a": "4-5,12-13", "b": "4,12", "c": "5,13", "d": "5,13", "e": "13",
					"f": "5"}}},
		{"no CPU left to share", Options{}, wholePod("4", podOf(nil, container("a", "4"), burstable("b", "1"))), 0,
			bubble{Reason: EmptyPodSharedPoolError,
				Message: "pod rejected, sum of exclusive container cpu requests equals pod budget, leaving no cpus " +
					"for shared containers"}},
		{"no CPU left for an init container", Options{},
			wholePod("2", podOf([]corev1.Container{sidecar(container("a", "2")), burstable("b", "1")})), 0,
			bubble{Reason: EmptyPodSharedPoolError,
				Message: "pod rejected, pod has shared init containers but no cpus available for them"}},
		{"whole cores for the pod, parts of cores for its containers", Options{FullPCPUsOnly: true},
			wholePod("2", podOf(nil, container("a", "1"), burstable("b", "1"))), 0,
			bubble{CPUs: "1,9", Shared: "9", Containers: map[string]string{"a": "1", "b": "9"}}},
		{"no whole cores", Options{FullPCPUsOnly: true},
			wholePod("3", podOf(nil, container("a", "1"), burstable("b", "1"))), 0,
			bubble{Reason: SMTAlignmentError,
				Message: "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2"}},
		{"more than the machine has", Options{}, wholePod("20", podOf(nil, container("a", "1"), burstable("b", "1"))),
			0,
			bubble{Reason: UnexpectedAdmissionError,
				Message: "Allocate failed due to not enough cpus available to satisfy request: requested=20, " +
					"available=14, which is unexpected"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			pool := Pool{Machine: build(2, 1, 1, 4, 2), Reserved: cpuset.New(0, 8), Options: test.options}
			b, err := AllocateBubble(pool, test.pod, test.on)
			got := bubble{CPUs: b.CPUs.String(), Shared: b.Shared.String(), Reason: reason.Of(err),
				Message: reason.Message(err)}
			for name, cpus := range b.Containers {
				if got.Containers == nil {
					got.Containers = map[string]string{}
				}
				got.Containers[name] = cpus.String()
				if exclusive := test.pod.Spec.Resources != nil &&
					b.Exclusive[name]; exclusive != (Exclusive(test.pod, find(test.pod, name)) > 0) {
					t.Errorf("container %s exclusive: %v", name, exclusive)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func find(p *corev1.Pod, name string) *corev1.Container {
	c, _ := pod.FindContainer(p, name)
	return c.Container
}
