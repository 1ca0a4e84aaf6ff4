package podstatus

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/plan"
)

// yes and no are conditions of this generation that changed now.
func yes(t corev1.PodConditionType, why, message string) corev1.PodCondition {
	c := condition(t, true, why, message, 3)
	c.LastTransitionTime = metav1.NewTime(now)
	return c
}

func no(t corev1.PodConditionType, why, message string) corev1.PodCondition {
	c := condition(t, false, why, message, 3)
	c.LastTransitionTime = metav1.NewTime(now)
	return c
}

// five returns the conditions that every pod has. why and message say why it is not ready.
func five(sandbox, initialized corev1.PodCondition, why, message string) []corev1.PodCondition {
	if why == "" {
		return []corev1.PodCondition{sandbox, initialized, yes(corev1.PodReady, "", ""),
			yes(corev1.ContainersReady, "", ""), yes(corev1.PodScheduled, "", "")}
	}
	return []corev1.PodCondition{sandbox, initialized, no(corev1.PodReady, why, message),
		no(corev1.ContainersReady, why, message), yes(corev1.PodScheduled, "", "")}
}

func withRestartAll(p *corev1.Pod) {
	p.Spec.Containers[0].RestartPolicyRules = []corev1.ContainerRestartRule{
		{Action: corev1.ContainerRestartRuleActionRestartAllContainers}}
}

func TestConditions(t *testing.T) {
	box, noBox := yes(corev1.PodReadyToStartContainers, "", ""), no(corev1.PodReadyToStartContainers, "", "")
	initialized := yes(corev1.PodInitialized, "", "")
	evicted := &pod.Stop{Reason: "Evicted", Message: "low on memory"}
	twoReady := observed()
	twoReady.Sandboxes = append(twoReady.Sandboxes, twoReady.Sandboxes[0])
	noAddress := observed()
	noAddress.Sandboxes[0].IPs = nil
	gated := func(status corev1.ConditionStatus) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "lb"}}
			if status != "" {
				p.Status.Conditions = []corev1.PodCondition{{Type: "lb", Status: status}}
			}
		}
	}
	ready := func(condition corev1.PodCondition) []corev1.PodCondition {
		all := five(box, initialized, "", "")
		all[2] = condition
		return all
	}
	tests := []struct {
		name string
		in   Input
		want []corev1.PodCondition
	}{
		{"nothing yet", Input{Pod: newPod(nil, "b", "a")},
			five(noBox, initialized, "ContainersNotReady", "containers with unready status: [b a]")},
		{"init containers and a sidecar are open",
			Input{Pod: newPod(func(p *corev1.Pod) { withInit("i")(p); withSidecar(p) }, "a"), Observed: observed()},
			five(box, no(corev1.PodInitialized, "ContainersNotInitialized",
				"containers with incomplete status: [i side]"),
				"ContainersNotReady", "containers with unready status: [side a]")},
		{"a sidecar that restarts does not undo initialized",
			Input{Pod: newPod(withSidecar, "a"), Observed: observed(running("a", "a1"), exited("side", "s1", 1))},
			five(box, initialized, "ContainersNotReady", "containers with unready status: [side]")},
		{"initialized stays when all restart", Input{Pod: newPod(withInit("i"), "a"), Observed: observed(),
			Previous: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{initialized}}},
			five(box, initialized, "ContainersNotReady", "containers with unready status: [a]")},
		{"ready", Input{Pod: newPod(nil, "a"), Observed: observed(running("a", "a1"))}, five(box, initialized, "", "")},
		{"two sandboxes", Input{Pod: newPod(nil, "a"), Observed: twoReady},
			five(noBox, initialized, "ContainersNotReady", "containers with unready status: [a]")},
		{"sandbox has no address", Input{Pod: newPod(nil, "a"), Observed: noAddress},
			five(noBox, initialized, "ContainersNotReady", "containers with unready status: [a]")},
		{"sandbox of the wrong network mode",
			Input{Pod: newPod(func(p *corev1.Pod) { p.Spec.HostNetwork = true }, "a"), Observed: observed()},
			five(noBox, initialized, "ContainersNotReady", "containers with unready status: [a]")},
		{"readiness gate is missing", Input{Pod: newPod(gated(""), "a"), Observed: observed(running("a", "a1"))},
			ready(no(corev1.PodReady, "ReadinessGatesNotReady",
				`corresponding condition of pod readiness gate "lb" does not exist.`))},
		{"readiness gate is false",
			Input{Pod: newPod(gated(corev1.ConditionFalse), "a"), Observed: observed(running("a", "a1"))},
			append([]corev1.PodCondition{{Type: "lb", Status: corev1.ConditionFalse}},
				ready(no(corev1.PodReady, "ReadinessGatesNotReady",
					`the status of pod readiness gate "lb" is not "True", but False`))...)},
		{"succeeded",
			Input{Pod: newPod(nil, "a"), Observed: observed(exited("a", "a1", 0)), Plan: &plan.Plan{Done: true}},
			five(box, yes(corev1.PodInitialized, "PodCompleted", ""), "PodCompleted", "")},
		{"failed", Input{Pod: newPod(nil, "a"), Observed: observed(exited("a", "a1", 1)),
			Plan: &plan.Plan{Done: true, Failed: true}},
			five(box, initialized, "PodFailed", "")},
		{"over its deadline it is not ready, even while it stops",
			Input{Pod: newPod(nil, "a"), Observed: observed(running("a", "a1")),
				Stop: &pod.Stop{Reason: "DeadlineExceeded"}},
			five(box, initialized, "PodFailed", "")},
		{"evicted, still stopping", Input{Pod: newPod(nil, "a"), Observed: observed(running("a", "a1")), Stop: evicted},
			five(box, initialized, "", "")},
		{"evicted",
			Input{Pod: newPod(nil, "a"), Observed: observed(exited("a", "a1", 0)), Stop: evicted, Terminated: true},
			append([]corev1.PodCondition{yes(corev1.DisruptionTarget, "TerminationByKubelet", "low on memory")},
				five(box, initialized, "PodFailed", "")...)},
		{"deleted is no disruption",
			Input{Pod: newPod(nil, "a"), Observed: observed(exited("a", "a1", 0)), Stop: &pod.Stop{Reason: "Deleted"},
				Terminated: true},
			five(box, yes(corev1.PodInitialized, "PodCompleted", ""), "PodCompleted", "")},
		{"conditions of another writer", Input{Pod: newPod(nil, "a"), Observed: observed(running("a", "a1")),
			Extra: []corev1.PodCondition{{Type: corev1.PodResizePending, Status: corev1.ConditionTrue,
				Reason: "Deferred", ObservedGeneration: 2}}},
			append([]corev1.PodCondition{{Type: corev1.PodResizePending, Status: corev1.ConditionTrue,
				Reason: "Deferred", ObservedGeneration: 2, LastTransitionTime: metav1.NewTime(now)}},
				five(box, initialized, "", "")...)},
		{"all containers restart",
			Input{Pod: newPod(withRestartAll, "a"), Observed: observed(exited("a", "a1", 1)),
				Plan: &plan.Plan{RestartingAll: true}},
			append(five(box, initialized, "ContainersNotReady", "containers with unready status: [a]"),
				corev1.PodCondition{Type: corev1.AllContainersRestarting, Status: corev1.ConditionTrue,
					Reason:  "RestartAllContainersStarted",
					Message: "container exited with restart policy rule", LastTransitionTime: metav1.NewTime(now)})},
		{"all containers could restart",
			Input{Pod: newPod(withRestartAll, "a"), Observed: observed(running("a", "a1"))},
			append(five(box, initialized, "", ""),
				corev1.PodCondition{Type: corev1.AllContainersRestarting, Status: corev1.ConditionFalse,
					LastTransitionTime: metav1.NewTime(now)})},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.in.Node, tt.in.Now = node, now
			if diff := cmp.Diff(tt.want, Compute(tt.in).Conditions); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
		})
	}
}

func TestConditionTimesFollowTheStatus(t *testing.T) {
	p := newPod(nil, "a")
	first := Compute(Input{Pod: p, Observed: observed(running("a", "a1")), Node: node, Now: t0})
	second := Compute(Input{Pod: p, Observed: observed(exited("a", "a1", 1)), Node: node, Now: now, Previous: first})
	got := map[corev1.PodConditionType]metav1.Time{}
	for _, c := range second.Conditions {
		got[c.Type] = c.LastTransitionTime
	}
	changed := metav1.NewTime(now)
	want := map[corev1.PodConditionType]metav1.Time{
		corev1.PodReadyToStartContainers: at(0), corev1.PodInitialized: at(0), corev1.PodScheduled: at(0),
		corev1.PodReady: changed, corev1.ContainersReady: changed,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("transition times (-want +got):\n%s", diff)
	}
}

func TestAddresses(t *testing.T) {
	onHost := func(p *corev1.Pod) { p.Spec.HostNetwork = true }
	box := func(ready bool, ips ...string) *pod.Observed {
		return &pod.Observed{Sandboxes: []pod.SandboxStatus{{ID: "box", Ready: ready, IPs: ips}}}
	}
	tests := []struct {
		name string
		in   Input
		want []corev1.PodIP
	}{
		{"one family", Input{Pod: newPod(nil, "a"), Observed: box(true, "10.0.0.7"), Node: node},
			[]corev1.PodIP{{IP: "10.0.0.7"}}},
		{"order of the host",
			Input{Pod: newPod(nil, "a"), Observed: box(true, "10.0.0.7", "fd00::7"),
				Node: Node{HostIPs: []string{"2001:db8::1", "192.0.2.1"}}},
			[]corev1.PodIP{{IP: "fd00::7"}, {IP: "10.0.0.7"}}},
		{"first of each family, written as usual",
			Input{Pod: newPod(nil, "a"), Observed: box(true, "::ffff:10.0.0.7", "10.0.0.8", "FD00:0::7", "junk"),
				Node: node},
			[]corev1.PodIP{{IP: "10.0.0.7"}, {IP: "fd00::7"}}},
		{"the sandbox has ended",
			Input{Pod: newPod(nil, "a"), Observed: box(false), Node: node,
				Previous: corev1.PodStatus{Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: "10.0.0.7"}}}},
			[]corev1.PodIP{{IP: "10.0.0.7"}}},
		{"host network", Input{Pod: newPod(onHost, "a"), Node: node},
			[]corev1.PodIP{{IP: "192.0.2.1"}, {IP: "2001:db8::1"}}},
		{"host network, the node got a second family", Input{Pod: newPod(onHost, "a"), Node: node,
			Previous: corev1.PodStatus{Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: "192.0.2.9"}}}},
			[]corev1.PodIP{{IP: "192.0.2.9"}, {IP: "2001:db8::1"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.in.Now = now
			got := Compute(tt.in)
			if diff := cmp.Diff(tt.want, got.PodIPs); diff != "" {
				t.Errorf("pod addresses (-want +got):\n%s", diff)
			}
			if got.PodIP != tt.want[0].IP {
				t.Errorf("podIP = %q, want the first of %v", got.PodIP, tt.want)
			}
		})
	}
}

func TestHostIPs(t *testing.T) {
	in, out := corev1.NodeInternalIP, corev1.NodeExternalIP
	for title, test := range map[string]struct {
		all  []corev1.NodeAddress
		want []string
	}{
		"no address": {all: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "n"}}},
		"internal ones first": {all: []corev1.NodeAddress{{Type: out, Address: "192.0.2.1"},
			{Type: in, Address: "10.0.0.1"}}, want: []string{"10.0.0.1"}},
		"one of a family": {all: []corev1.NodeAddress{{Type: in, Address: "10.0.0.1"},
			{Type: in, Address: "10.0.0.2"}, {Type: in, Address: "fd00::1"}, {Type: in, Address: "fd00::2"}},
			want: []string{"10.0.0.1", "fd00::1"}},
		"the other external": {all: []corev1.NodeAddress{{Type: in, Address: "fd00::1"},
			{Type: out, Address: "192.0.2.1"}}, want: []string{"fd00::1", "192.0.2.1"}},
	} {
		t.Run(title, func(t *testing.T) {
			if diff := cmp.Diff(test.want, HostIPs(test.all)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
