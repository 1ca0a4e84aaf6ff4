package admission

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/node/resource"
)

const criticalClass = "priorityClassName: system-node-critical\n"

// with is a pod of a priority; limits make it Guaranteed.
func with(t testing.TB, name string, priority int, resources string) PodInfo {
	return other(t, name, fmt.Sprintf("priority: %d\ncontainers: [{name: c, resources: {%s}}]", priority, resources))
}

func TestPreemption(t *testing.T) {
	guaranteed := func(cpu string) string {
		return "requests: {cpu: " + cpu + ", memory: 1Mi}, limits: {cpu: " + cpu + ", memory: 1Mi}"
	}
	tests := map[string]struct {
		spec     string
		admitted []PodInfo
		want     []types.UID // nil: rejected
	}{
		"not critical": {requests("cpu: 1"), []PodInfo{with(t, "a", -5, "requests: {cpu: 2}")},
			nil},
		"its priority is critical": {"priority: 2000000000\n" + requests("cpu: 1"),
			[]PodInfo{with(t, "a", 0, "requests: {cpu: 2}")}, []types.UID{"a"}},
		"its class is critical": {criticalClass + requests("cpu: 1"),
			[]PodInfo{with(t, "a", 1999999999, "requests: {cpu: 2}")}, []types.UID{"a"}},
		"not those of its rank": {criticalClass + requests("cpu: 1"),
			[]PodInfo{with(t, "a", 2000001000, "requests: {cpu: 2}")}, nil},
		"but less critical ones": {criticalClass + requests("cpu: 1"),
			[]PodInfo{with(t, "a", 2000000000, "requests: {cpu: 2}")}, []types.UID{"a"}},
		"one large, not two small": {criticalClass + requests("cpu: 1"),
			[]PodInfo{with(t, "a", 0, "requests: {cpu: 500m}"), with(t, "b", 0, "requests: {cpu: 500m}"),
				with(t, "c", 0, "requests: {cpu: 1}")}, []types.UID{"c"}},
		"the lower priority of equals": {criticalClass + requests("cpu: 1"),
			[]PodInfo{with(t, "a", 7, "requests: {cpu: 1}"), with(t, "b", 3, "requests: {cpu: 1}")}, []types.UID{"b"}},
		"the smaller of equals": {criticalClass + requests("cpu: 1"),
			[]PodInfo{with(t, "a", 3, "requests: {cpu: 1, memory: 2Mi}"),
				with(t, "b", 3, "requests: {cpu: 1, memory: 1Mi}")}, []types.UID{"b"}},
		"Burstable before Guaranteed": {criticalClass + requests("cpu: 1"),
			[]PodInfo{with(t, "a", 0, guaranteed("1")), with(t, "b", 9, "requests: {cpu: 1}")}, []types.UID{"b"}},
		"Guaranteed, if it has to be": {criticalClass + requests("cpu: 2"),
			[]PodInfo{with(t, "a", 0, guaranteed("1500m")), with(t, "b", 0, "requests: {cpu: 500m}")},
			[]types.UID{"b", "a"}},
		"BestEffort for a place": {criticalClass,
			[]PodInfo{with(t, "a", 0, "requests: {cpu: 1}"), with(t, "b", 5, ""), with(t, "c", 4, "")},
			[]types.UID{"c"}},
		"a place that another gives anyway": {criticalClass + requests("cpu: 2"),
			[]PodInfo{with(t, "a", 0, "requests: {cpu: 1}"), with(t, "b", 0, ""), with(t, "c", 0, "")},
			[]types.UID{"a"}},
		"all of them are not enough": {criticalClass + requests("cpu: 2"),
			[]PodInfo{with(t, "a", 0, "requests: {cpu: 500m}"), with(t, "b", 2000001000, "requests: {cpu: 500m}")},
			nil},
		"beside one that ends": {criticalClass + requests("cpu: 2"),
			[]PodInfo{with(t, "a", 0, "requests: {cpu: 1}"),
				ending(with(t, "b", 0, "requests: {cpu: 1}"), time.Unix(7, 0))}, []types.UID{"a"}},
		"those that end are enough": {criticalClass + requests("cpu: 1"),
			[]PodInfo{with(t, "a", 0, "requests: {cpu: 1}"),
				ending(with(t, "b", 0, "requests: {cpu: 1}"), time.Unix(7, 0))}, []types.UID{}},
		"not if a port is taken too": {criticalClass +
			"containers: [{name: c, ports: [{containerPort: 1, hostPort: 80}], resources: {requests: {cpu: 1}}}]",
			[]PodInfo{with(t, "a", 0, "requests: {cpu: 2}"), other(t, "b", port("hostPort: 80"))}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			in := In{Pod: spec(t, test.spec), Node: facts(), Admitted: test.admitted, Config: Config{Standalone: true}}
			got, _ := Admit(in)
			if (got.Verdict == Rejected) != (test.want == nil) || got.Verdict == Admitted {
				t.Fatalf("answer %+v", got)
			}
			if d := cmp.Diff(fmt.Sprint(test.want), fmt.Sprint(got.Preempt)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestPreemptionIsTold(t *testing.T) {
	in := In{Pod: spec(t, criticalClass+requests("cpu: 1")), Node: facts(),
		Admitted: []PodInfo{with(t, "a", 0, "requests: {cpu: 2}")}, Config: Config{Standalone: true}}
	want := Answer{Verdict: NotYet, Reason: "OutOfcpu", Preempt: []types.UID{"a"}, Reserve: true,
		Message: "waiting for pod default/a to end: " +
			"Node didn't have enough resource: cpu, requested: 1000, used: 2000, capacity: 2000"}
	got, _ := Admit(in)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// No pod is preempted for a pod that would be rejected even then.
func TestPreemptionForWhatCannotBeGiven(t *testing.T) {
	in := In{Pod: spec(t, criticalClass+requests("cpu: 1")), Node: facts(),
		Admitted: []PodInfo{with(t, "a", 0, "requests: {cpu: 2}")}, Config: Config{Standalone: true}}
	in.Allot = func(beside []types.UID) (resource.Allocation, error) {
		return resource.Allocation{}, reason.New("SMTAlignmentError", "not whole cores beside %d", len(beside))
	}
	got, _ := Admit(in)
	if d := cmp.Diff(reject("SMTAlignmentError", "not whole cores beside 0"), got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// Static pods are critical where the configuration says so. Otherwise only the priority counts.
func TestCritical(t *testing.T) {
	static := spec(t, "{}")
	static.Annotations = map[string]string{pod.AnnotationConfigSource: "file"}
	for _, test := range []struct {
		pod    *corev1.Pod
		static bool
		want   bool
	}{
		{static, false, false},
		{static, true, true},
		{spec(t, criticalClass), false, true},
		{spec(t, "priority: 1999999999"), true, false},
	} {
		if got := (In{Config: Config{StaticCritical: test.static}}).critical(test.pod); got != test.want {
			t.Errorf("%v, static pods critical %v: %v", test.pod.Spec, test.static, got)
		}
	}
}

// TestPreemptsNoMoreThanItMust fills nodes at random. No victim has the priority of the pod or a higher one, the
// victims are enough, and each of them is needed.
func TestPreemptsNoMoreThanItMust(t *testing.T) {
	preempted := 0
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 2))
		n := facts()
		n.Allocatable = list("cpu", "4", "memory", "4Gi", "ephemeral-storage", "10Gi", "pods", "8")
		var admitted []PodInfo
		for i := range 12 {
			p := randomPod(r, i)
			p.Spec.Priority = new([]int32{-1, 0, 0, 50, 2_000_000_000, 2_000_001_000}[r.IntN(6)])
			if a, _ := Admit(In{Pod: p, Node: n, Admitted: admitted}); a.Verdict == Admitted {
				admitted = append(admitted, PodInfo{Pod: p})
			}
		}
		p := randomPod(r, 99)
		p.Spec.PriorityClassName = "system-cluster-critical"
		in := In{Pod: p, Node: n, Admitted: admitted, Config: Config{Standalone: true}}
		answer, _ := Admit(in)
		again, _ := Admit(in)
		if d := cmp.Diff(answer, again); d != "" {
			t.Fatalf("seed %d: twice asked, two answers:\n%s", seed, d)
		}
		if len(answer.Preempt) == 0 {
			continue
		}
		preempted++
		for skip := range len(answer.Preempt) + 1 { // the last skips none
			in.Admitted = nil
			for _, o := range admitted {
				i := indexOf(answer.Preempt, o.Pod.UID)
				if i >= 0 && pod.Priority(o.Pod) >= pod.Priority(p) {
					t.Fatalf("seed %d: %s goes, of priority %d", seed, o.Pod.Name, pod.Priority(o.Pod))
				}
				if i < 0 || i == skip {
					in.Admitted = append(in.Admitted, o)
				}
			}
			if fits := Fits(in).Verdict == Admitted; fits != (skip == len(answer.Preempt)) {
				t.Fatalf("seed %d: of %v all but %d go, and the pod fits: %v", seed, answer.Preempt, skip, fits)
			}
		}
	}
	if preempted < 50 {
		t.Errorf("only %d of the nodes had to preempt", preempted)
	}
}

func indexOf(list []types.UID, uid types.UID) int {
	for i, u := range list {
		if u == uid {
			return i
		}
	}
	return -1
}
