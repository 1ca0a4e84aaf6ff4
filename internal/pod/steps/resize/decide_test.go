package resize

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-run/berth/internal/model/pod"
)

func list(pairs ...string) corev1.ResourceList {
	all := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		all[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return all
}

// needs returns a request of CPU, and a request and a limit of memory.
func needs(cpu, memory, limit string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: list("cpu", cpu, "memory", memory), Limits: list("memory", limit)}
}

// newPod returns a pod with one app container.
func newPod(r corev1.ResourceRequirements, restartFor ...corev1.ResourceName) *pod.Pod {
	c := corev1.Container{Name: "app", Resources: r}
	for _, name := range restartFor {
		c.ResizePolicy = append(c.ResizePolicy,
			corev1.ContainerResizePolicy{ResourceName: name, RestartPolicy: corev1.RestartContainer})
	}
	return &pod.Pod{Pod: &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{c}},
	}}
}

// withWhole returns the pod with a pod-level limit of memory, "" for none.
func withWhole(p *pod.Pod, limit string) *pod.Pod {
	if limit != "" {
		p.Spec.Resources = &corev1.ResourceRequirements{Limits: list("memory", limit)}
	}
	return p
}

// An allocation includes the pod-level resources.
func TestSizedPodLevel(t *testing.T) {
	for _, tt := range []struct{ allocated, desired, other string }{
		{"1Gi", "2Gi", ""}, {"", "2Gi", ""}, {"1Gi", "", ""}, {"1Gi", "2Gi", "example.com/fpga"}} {
		was, want := withWhole(newPod(small), tt.allocated), withWhole(newPod(small), tt.desired)
		if tt.other != "" {
			for _, p := range []*pod.Pod{was, want} {
				p.Spec.Resources.Limits[corev1.ResourceName(tt.other)] = resource.MustParse("1")
			}
		}
		got := sized(want, sizesOf(was.Pod))
		if diff := cmp.Diff(was.Spec.Resources, got.Spec.Resources); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", tt, diff)
		}
		if same := sized(want, sizesOf(want.Pod)); same != want {
			t.Errorf("%+v: equal resources made another pod", tt)
		}
	}
}

func runs(id string) *pod.Observed {
	return &pod.Observed{Containers: []pod.ContainerStatus{{ID: id, Name: "app", State: pod.StateRunning}}}
}

func TestSized(t *testing.T) {
	was := newPod(corev1.ResourceRequirements{Requests: list("cpu", "1", "example.com/gpu", "1"),
		Limits: list("cpu", "2")})
	if got := sized(was, Sizes{"app": {Requests: list("cpu", "1000m"), Limits: list("cpu", "2")}}); got != was {
		t.Error("an equal quantity in another notation made another pod")
	}
	got := sized(was, Sizes{"app": needs("500m", "1Gi", "2Gi"), "gone": {}})
	want := corev1.ResourceRequirements{Requests: list("cpu", "500m", "memory", "1Gi", "example.com/gpu", "1"),
		Limits: list("memory", "2Gi")}
	if diff := cmp.Diff(want, got.Spec.Containers[0].Resources); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(was.Spec.Containers[0].Resources.Requests) != 2 {
		t.Error("the desired pod was changed")
	}
}

func TestDecide(t *testing.T) {
	small, large := newPod(needs("1", "1Gi", "2Gi")).Pod, newPod(needs("1", "2Gi", "4Gi")).Pod
	larger := small.DeepCopy()
	larger.Spec.Resources = &corev1.ResourceRequirements{Requests: list("memory", "1Gi"), Limits: list("memory", "3Gi")}
	tests := []struct {
		name string
		q    question
		want answer
	}{
		{"it fits", question{was: small, want: large}, answer{}},
		{"others are in the way", question{was: small, want: large, beside: "not enough"},
			answer{reason: deferred, message: "not enough"}},
		{"what it holds for itself is fixed",
			question{was: small, want: large, fixed: "it is pinned", alone: "never enough", beside: "not enough"},
			answer{infeasible, "it is pinned", staticNodes}},
		{"the node is too small", question{was: small, want: large, alone: "never enough", beside: "not enough"},
			answer{reason: deferred, message: "never enough"}},
		{"another class", question{was: small, want: newPod(corev1.ResourceRequirements{}).Pod},
			answer{reason: deferred,
				message: "the pod would be BestEffort and is Burstable: its QoS class cannot change while it runs"}},
		{"swap", question{was: small, want: large, swap: true},
			answer{infeasible,
				`the memory request of container "app" cannot change without a restart: its swap limit depends on it`,
				swapLimits}},
		{"swap, with a restart",
			question{was: small, want: newPod(needs("1", "2Gi", "4Gi"), corev1.ResourceMemory).Pod, swap: true},
			answer{}},
		{"the pod's own resources, which are fixed",
			question{was: small, want: larger, podFixed: true, beside: "not enough"},
			answer{infeasible, "InPlacePodLevelResourcesVerticalScaling is disabled", "plr_feature_gate_off"}},
		{"the pod's own resources", question{was: small, want: larger}, answer{}},
		{"swap, only the CPU", question{was: small, want: newPod(needs("2", "1Gi", "2Gi")).Pod, swap: true}, answer{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := decide(tt.q); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestDifference(t *testing.T) {
	now, was := needs("1", "2Gi", "4Gi"), needs("1", "1Gi", "2Gi")
	app := func(p *pod.Pod) pod.Container { c, _ := pod.FindContainer(p.Pod, "app"); return c }
	plain, memory, cpu := newPod(now), newPod(now, corev1.ResourceMemory), newPod(now, corev1.ResourceCPU)
	exited := &pod.Observed{Containers: []pod.ContainerStatus{{ID: "a", Name: "app", State: pod.StateExited}}}
	bounded := newPod(corev1.ResourceRequirements{})
	bounded.Spec.Resources = &corev1.ResourceRequirements{Limits: list("memory", "1Gi")}
	starting := newPod(now).Pod
	starting.Spec.InitContainers, starting.Spec.Containers = starting.Spec.Containers, nil
	debug := plain.DeepCopy()
	debug.Spec.EphemeralContainers = []corev1.EphemeralContainer{
		{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "app"}}}
	debug.Spec.Containers = nil
	tests := []struct {
		name     string
		pod      *corev1.Pod
		observed *pod.Observed
		actuated map[string]given
		want     work
	}{
		{"nothing runs", plain.Pod, nil, nil, work{}},
		{"it has what it is to have", plain.Pod, runs("a"), map[string]given{"app": {ID: "a", Resources: now}}, work{}},
		{"it has other resources", plain.Pod, runs("a"), map[string]given{"app": {ID: "a", Resources: was}},
			work{updates: []update{{id: "a", container: app(plain), known: true, was: was, want: now}}}},
		{"nothing is known of it", plain.Pod, runs("a"), nil,
			work{updates: []update{{id: "a", container: app(plain), want: now}}}},
		{"only an earlier instance is known", plain.Pod, runs("b"), map[string]given{"app": {ID: "a", Resources: was}},
			work{updates: []update{{id: "b", container: app(plain), was: was, want: now}}}},
		{"it restarts for that", memory.Pod, runs("a"), map[string]given{"app": {ID: "a", Resources: was}},
			work{restarts: map[string]string{"app": "a"}}},
		{"it restarts for something else", cpu.Pod, runs("a"), map[string]given{"app": {ID: "a", Resources: was}},
			work{updates: []update{{id: "a", container: app(cpu), known: true, was: was, want: now}}}},
		{"it is marked", memory.Pod, runs("a"), map[string]given{"app": {ID: "a", Resources: was, Restart: true}},
			work{awaited: true}},
		{"it is marked and has ended", memory.Pod, exited,
			map[string]given{"app": {ID: "a", Resources: was, Restart: true}}, work{awaited: true}},
		{"it has ended by itself", memory.Pod, exited, map[string]given{"app": {ID: "a", Resources: was}}, work{}},
		{"an ephemeral container", debug, runs("a"), nil, work{}},
		{"an init container of a node that does not resize it", starting, runs("a"),
			map[string]given{"app": {ID: "a", Resources: was}}, work{}},
		{"the pod's limit has changed", bounded.Pod, runs("a"),
			map[string]given{"app": {ID: "a", Bounds: list("memory", "2Gi")}},
			work{updates: []update{{id: "a", container: app(bounded), known: true,
				was:  corev1.ResourceRequirements{Limits: list("memory", "2Gi")},
				want: corev1.ResourceRequirements{Limits: list("memory", "1Gi")}}}}},
		{"the pod's limit is as it was", bounded.Pod, runs("a"),
			map[string]given{"app": {ID: "a", Bounds: list("memory", "1Gi")}}, work{}},
		{"the pod's limit, and a record of an older agent", bounded.Pod, runs("a"), map[string]given{"app": {ID: "a"}},
			work{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := difference(tt.pod, tt.observed, tt.actuated, tt.pod == starting)
			private := cmp.AllowUnexported(work{}, update{})
			if diff := cmp.Diff(tt.want, got, private, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestTakesMemory(t *testing.T) {
	limit := func(memory string) corev1.ResourceRequirements {
		if memory == "" {
			return corev1.ResourceRequirements{}
		}
		return corev1.ResourceRequirements{Limits: list("memory", memory)}
	}
	for _, tt := range []struct {
		was, now string
		known    bool
		want     bool
	}{
		{"2Gi", "1Gi", true, true},
		{"1Gi", "2Gi", true, false},
		{"", "2Gi", true, true},
		{"2Gi", "", true, false},
		{"2Gi", "1Gi", false, false},
	} {
		u := update{known: tt.known, was: limit(tt.was),
			want: limit(tt.now)}
		if got := u.less(); got != tt.want {
			t.Errorf("from %q to %q, known %v: got %v", tt.was, tt.now, tt.known, got)
		}
	}
}
