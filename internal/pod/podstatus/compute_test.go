package podstatus

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/plan"
)

var (
	t0   = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	now  = t0.Add(time.Hour)
	node = Node{Runtime: "containerd", HostIPs: []string{"192.0.2.1", "2001:db8::1"}}
)

func at(seconds int) metav1.Time { return metav1.NewTime(t0.Add(time.Duration(seconds) * time.Second)) }

// newPod is a pod of app containers; change edits its spec.
func newPod(change func(*corev1.Pod), apps ...string) *pod.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "u1", Generation: 3}}
	for _, name := range apps {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: name, Image: "img"})
	}
	if change != nil {
		change(p)
	}
	return &pod.Pod{Pod: p}
}

func withInit(names ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		for _, name := range names {
			p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: name, Image: "img"})
		}
	}
}

func withSidecar(p *corev1.Pod) {
	p.Spec.InitContainers = append(p.Spec.InitContainers,
		corev1.Container{Name: "side", Image: "img", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)})
}

// observed is a pod with a ready sandbox.
func observed(containers ...pod.ContainerStatus) *pod.Observed {
	return &pod.Observed{
		Sandboxes:  []pod.SandboxStatus{{ID: "box", Ready: true, IPs: []string{"10.0.0.7"}}},
		Containers: containers,
	}
}

func created(name, id string) pod.ContainerStatus {
	return pod.ContainerStatus{ID: id, SandboxID: "box", Name: name, State: pod.StateCreated, Image: "img",
		ImageID: "sha256:1"}
}

func running(name, id string) pod.ContainerStatus {
	s := created(name, id)
	s.State, s.StartedAt = pod.StateRunning, t0.Add(time.Second)
	return s
}

func exited(name, id string, code int32) pod.ContainerStatus {
	s := running(name, id)
	s.State, s.ExitCode, s.Reason, s.FinishedAt = pod.StateExited, code, "Error", t0.Add(2*time.Second)
	if code == 0 {
		s.Reason = "Completed"
	}
	return s
}

func restarted(s pod.ContainerStatus, count int) pod.ContainerStatus {
	s.RestartCount = count
	return s
}

// Expected states.
func isRunning() corev1.ContainerState {
	return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(1)}}
}

func isWaiting(why, message string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: why, Message: message}}
}

func isTerminated(id string, code int32, why, message string) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: why,
		Message:   message,
		StartedAt: at(1), FinishedAt: at(2), ContainerID: "containerd://" + id}}
}

// known returns the status of a container that the runtime lists.
func known(name, id string, state corev1.ContainerState) corev1.ContainerStatus {
	up := state.Running != nil
	return corev1.ContainerStatus{Name: name, Image: "img", ImageID: "sha256:1", ContainerID: "containerd://" + id,
		State: state, Started: &up, Ready: up, Resources: &corev1.ResourceRequirements{}}
}

func unknown(name string, state corev1.ContainerState) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, Image: "img", State: state, Started: new(false)}
}

func with(s corev1.ContainerStatus, change func(*corev1.ContainerStatus)) corev1.ContainerStatus {
	change(&s)
	return s
}

func TestComputeRunningPod(t *testing.T) {
	p := newPod(func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m")}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data", ReadOnly: true}}
		p.Status.Conditions = []corev1.PodCondition{{Type: "example.com/gate", Status: corev1.ConditionTrue,
			LastTransitionTime: at(5)}}
		p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/gate"}}
	}, "app")
	seen := observed(running("app", "a1"))
	seen.Sandboxes[0].IPs = []string{"2001:db8::7", "10.0.0.7"}
	user := &corev1.ContainerUser{Linux: &corev1.LinuxContainerUser{UID: 7}}
	seen.Containers[0].User = user
	got := Compute(Input{Pod: p, Observed: seen, QOS: corev1.PodQOSBurstable, Node: node, Now: now,
		Previous: corev1.PodStatus{Phase: corev1.PodPending, StartTime: new(at(-1)), Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: at(-1)},
			{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: at(-1)},
		}}})
	cpu := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m")}
	condition := func(kind corev1.PodConditionType, at metav1.Time) corev1.PodCondition {
		return corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, ObservedGeneration: 3,
			LastTransitionTime: at}
	}
	later := metav1.NewTime(now)
	want := corev1.PodStatus{
		ObservedGeneration: 3, Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBurstable, StartTime: new(at(-1)),
		HostIP: "192.0.2.1", HostIPs: []corev1.HostIP{{IP: "192.0.2.1"}, {IP: "2001:db8::1"}},
		PodIP: "10.0.0.7", PodIPs: []corev1.PodIP{{IP: "10.0.0.7"}, {IP: "2001:db8::7"}},
		Conditions: []corev1.PodCondition{
			{Type: "example.com/gate", Status: corev1.ConditionTrue, LastTransitionTime: at(5)},
			condition(corev1.PodReadyToStartContainers, later), condition(corev1.PodInitialized, later),
			condition(corev1.PodReady, later),
			condition(corev1.ContainersReady, later), condition(corev1.PodScheduled, at(-1)),
		},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: "app", Image: "img", ImageID: "sha256:1", ContainerID: "containerd://a1", State: isRunning(),
			Ready: true, Started: new(true), User: user,
			Resources: &corev1.ResourceRequirements{Requests: cpu}, AllocatedResources: cpu,
			VolumeMounts: []corev1.VolumeMountStatus{{Name: "data", MountPath: "/data", ReadOnly: true,
				RecursiveReadOnly: new(corev1.RecursiveReadOnlyDisabled)}},
		}},
		AllocatedResources: cpu, Resources: &corev1.ResourceRequirements{Requests: cpu, Limits: corev1.ResourceList{}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

func TestComputeRejectedPod(t *testing.T) {
	got := Compute(Input{Pod: newPod(nil, "app"), Node: node, Now: now, QOS: corev1.PodQOSBestEffort,
		Refused: &Refusal{Reason: "OutOfcpu", Message: "Node didn't have enough resource: cpu", Final: true}})
	want := corev1.PodStatus{
		ObservedGeneration: 3, Phase: corev1.PodFailed, Reason: "OutOfcpu", QOSClass: corev1.PodQOSBestEffort,
		Message: "Pod was rejected: Node didn't have enough resource: cpu", StartTime: new(metav1.NewTime(now)),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

// A later agent admits a pod that an earlier agent rejected.
func TestComputeAdmittedAfterAll(t *testing.T) {
	in := Input{Pod: newPod(nil, "app"), Node: node, Now: now, Refused: &Refusal{Reason: "OutOfcpu", Final: true}}
	in.Previous, in.Refused = Compute(in), nil
	in.Observed = observed(running("app", "a1"))
	got := Compute(in)
	if got.Phase != corev1.PodRunning || got.Reason != "" || got.Message != "" {
		t.Errorf("%s %q %q", got.Phase, got.Reason, got.Message)
	}
}

func TestContainerStatuses(t *testing.T) {
	const backoff = "back-off 10s restarting failed container=app pod=web_default(u1)"
	crash := isTerminated("a1", 1, "Error", "")
	starts := func(name string) *plan.Plan { return &plan.Plan{Start: []plan.Start{{Container: container(name)}}} }
	lost := isTerminatedUnknown(usedToRunMessage)
	lost.Terminated.ContainerID = "containerd://a1"
	waits := func(why, message string) func(string) (string, string, bool) {
		return func(string) (string, string, bool) { return why, message, true }
	}
	tests := []struct {
		name string
		in   Input
		want []corev1.ContainerStatus // init, app, ephemeral
	}{
		{"nothing was made yet", Input{Pod: newPod(nil, "b", "app")},
			[]corev1.ContainerStatus{unknown("app", isWaiting("ContainerCreating", "")),
				unknown("b", isWaiting("ContainerCreating", ""))}},
		{"nothing was made yet, with init containers", Input{Pod: newPod(withInit("z", "i"), "app")},
			[]corev1.ContainerStatus{unknown("z", isWaiting("PodInitializing", "")),
				unknown("i", isWaiting("PodInitializing", "")),
				unknown("app", isWaiting("PodInitializing", ""))}},
		{"image cannot be pulled", Input{Pod: newPod(nil, "app"), Waiting: waits(reason.ErrImagePull, "no such host")},
			[]corev1.ContainerStatus{unknown("app", isWaiting("ErrImagePull", "no such host"))}},
		{"created", Input{Pod: newPod(nil, "app"), Observed: observed(created("app", "a1"))},
			[]corev1.ContainerStatus{known("app", "a1", isWaiting("ContainerCreating", ""))}},
		{"postStart still runs",
			Input{Pod: newPod(nil, "app"), Observed: observed(running("app", "a1")), Starting: func(string) bool {
				return true
			}},
			[]corev1.ContainerStatus{known("app", "a1", isWaiting("ContainerCreating", ""))}},
		{"a reason from an earlier start does not hide a running container",
			Input{Pod: newPod(nil, "app"), Observed: observed(running("app", "a1")),
				Waiting: waits(reason.RunContainerError, "x")},
			[]corev1.ContainerStatus{known("app", "a1", isRunning())}},
		{"crashed, to be started at once",
			Input{Pod: newPod(nil, "app"), Observed: observed(exited("app", "a1", 1)), Plan: starts("app")},
			[]corev1.ContainerStatus{known("app", "a1", crash)}},
		{"crash loop", Input{Pod: newPod(nil, "app"), Observed: observed(exited("app", "a1", 1)),
			Plan: &plan.Plan{Waiting: []plan.Waiting{{Name: "app", Reason: reason.CrashLoopBackOff,
				Message: backoff}}}},
			[]corev1.ContainerStatus{with(known("app", "a1", isWaiting("CrashLoopBackOff", backoff)),
				func(s *corev1.ContainerStatus) {
					s.LastTerminationState = crash
				})}},
		{"crash loop of starts that fail", Input{Pod: newPod(nil, "app"), Observed: observed(exited("app", "a1", 1)),
			Waiting: waits(reason.RunContainerError, "x"),
			Plan: &plan.Plan{Waiting: []plan.Waiting{{Name: "app", Reason: reason.CrashLoopBackOff,
				Message: backoff}}}},
			[]corev1.ContainerStatus{with(known("app", "a1", isWaiting("CrashLoopBackOff", backoff)),
				func(s *corev1.ContainerStatus) {
					s.LastTerminationState = crash
				})}},
		{"crashed, and its start fails", Input{Pod: newPod(nil, "app"), Observed: observed(exited("app", "a1", 1)),
			Plan: starts("app"), Waiting: waits(reason.RunContainerError, "x")},
			[]corev1.ContainerStatus{with(known("app", "a1", isWaiting("RunContainerError", "x")),
				func(s *corev1.ContainerStatus) {
					s.LastTerminationState = crash
				})}},
		{"crashed, and its image is gone",
			Input{Pod: newPod(nil, "app"), Observed: observed(exited("app", "a1", 1)), Plan: starts("app"),
				Waiting: waits(reason.ImagePullBackOff, "back-off")},
			[]corev1.ContainerStatus{with(known("app", "a1", isWaiting("ImagePullBackOff", "back-off")),
				func(s *corev1.ContainerStatus) {
					s.LastTerminationState = crash
				})}},
		{"after the backoff the last state is not the present one",
			Input{Pod: newPod(nil, "app"), Observed: observed(exited("app", "a1", 1)), Plan: starts("app"),
				Previous: previous(with(known("app", "a1", isWaiting("CrashLoopBackOff", backoff)),
					func(s *corev1.ContainerStatus) {
						s.LastTerminationState = crash
					}))},
			[]corev1.ContainerStatus{known("app", "a1", crash)}},
		{"restarted",
			Input{Pod: newPod(nil, "app"),
				Observed: observed(restarted(running("app", "a2"), 1), exited("app", "a1", 1))},
			[]corev1.ContainerStatus{with(known("app", "a2", isRunning()), func(s *corev1.ContainerStatus) {
				s.RestartCount, s.LastTerminationState = 1, crash
			})}},
		{"restarted, and the old one was removed",
			Input{Pod: newPod(nil, "app"), Observed: observed(running("app", "a2")),
				Previous: previous(known("app", "a1", crash))},
			[]corev1.ContainerStatus{with(known("app", "a2", isRunning()), func(s *corev1.ContainerStatus) {
				s.RestartCount, s.LastTerminationState = 1, crash
			})}},
		{"exited for good stays as it was",
			Input{Pod: newPod(nil, "app"), Observed: observed(), Previous: previous(known("app", "a1", crash))},
			[]corev1.ContainerStatus{known("app", "a1", crash)}},
		{"killed for its memory, with a termination message",
			Input{Pod: newPod(nil, "app"), Messages: map[string]string{"a1": "last words"},
				Observed: observed(pod.ContainerStatus{ID: "a1", Name: "app", State: pod.StateExited, ExitCode: 137,
					Reason: "OOMKilled", Message: "runtime says",
					StartedAt: t0.Add(time.Second), FinishedAt: t0.Add(2 * time.Second), Image: "img",
					ImageID: "sha256:1"})},
			[]corev1.ContainerStatus{known("app", "a1",
				isTerminated("a1", 137, "OOMKilled", "runtime says: last words"))}},
		{"ran and vanished",
			Input{Pod: newPod(nil, "app"), Observed: observed(), Previous: previous(known("app", "a1", isRunning()))},
			[]corev1.ContainerStatus{with(unknown("app", isWaiting("ContainerCreating", "")),
				func(s *corev1.ContainerStatus) {
					s.RestartCount, s.LastTerminationState = 1, lost
				})}},
		{"ran and vanished during the stop",
			Input{Pod: newPod(nil, "app"), Observed: observed(), Previous: previous(known("app", "a1", isRunning())),
				Stop: &pod.Stop{Reason: "Deleted"}},
			[]corev1.ContainerStatus{with(unknown("app", isWaiting("ContainerCreating", "")),
				func(s *corev1.ContainerStatus) {
					s.LastTerminationState = lost
				})}},
		{"ran and is in an unknown state",
			Input{Pod: newPod(nil, "app"),
				Observed: observed(pod.ContainerStatus{ID: "a1", Name: "app", Image: "img", ImageID: "sha256:1"}),
				Previous: previous(known("app", "a1", isRunning()))},
			[]corev1.ContainerStatus{known("app", "a1", isTerminatedUnknown(lostMessage))}},
		{"unknown stays unknown",
			Input{Pod: newPod(nil, "app"),
				Observed: observed(pod.ContainerStatus{ID: "a1", Name: "app", Image: "img", ImageID: "sha256:1"}),
				Previous: previous(known("app", "a1", isTerminatedUnknown(lostMessage)))},
			[]corev1.ContainerStatus{known("app", "a1", isTerminatedUnknown(lostMessage))}},
		{"nothing is left of a pod that was stopped",
			Input{Pod: newPod(nil, "app"), Previous: previous(known("app", "a1", isRunning())),
				Stop: &pod.Stop{Reason: "Deleted"}, Terminated: true},
			[]corev1.ContainerStatus{with(unknown("app", isTerminatedUnknown(lostMessage)),
				func(s *corev1.ContainerStatus) {
					s.LastTerminationState = lost
				})}},
		{"stopped between two init containers",
			Input{Pod: newPod(withInit("i1", "i2"), "app"), Observed: observed(exited("i1", "x1", 1)),
				Stop: &pod.Stop{Reason: "Deleted"}, Terminated: true},
			[]corev1.ContainerStatus{known("i1", "x1", isTerminated("x1", 1, "Error", "")),
				unknown("i2", isWaiting("PodInitializing", "")), unknown("app", isWaiting("PodInitializing", ""))}},
		{"removed because all restart",
			Input{Pod: newPod(nil, "app"), Observed: observed(), Plan: &plan.Plan{RestartingAll: true},
				Previous: previous(known("app", "a1", isRunning()))},
			[]corev1.ContainerStatus{with(unknown("app", isWaiting(restartingAllContainers, removedMessage)),
				func(s *corev1.ContainerStatus) {
					s.RestartCount = 1
					s.LastTerminationState = lostState(restartingAllContainers, removedMessage)
				})}},
		{"init container that completed is ready",
			Input{Pod: newPod(withInit("i"), "app"), Observed: observed(running("app", "a1"), exited("i", "x1", 0))},
			[]corev1.ContainerStatus{with(known("i", "x1", isTerminated("x1", 0, "Completed", "")),
				func(s *corev1.ContainerStatus) {
					s.Ready = true
				}), known("app", "a1", isRunning())}},
		{"init container that was collected",
			Input{Pod: newPod(withInit("i"), "app"), Observed: observed(running("app", "a1"))},
			[]corev1.ContainerStatus{with(unknown("i",
				corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed",
					Message: inferredMessage}}),
				func(s *corev1.ContainerStatus) { s.Ready = true }), known("app", "a1", isRunning())}},
		{"sidecar is started and ready like an app",
			Input{Pod: newPod(withSidecar, "app"), Observed: observed(running("side", "s1"))},
			[]corev1.ContainerStatus{known("side", "s1", isRunning()),
				unknown("app", isWaiting("PodInitializing", ""))}},
		{"ephemeral container",
			Input{Pod: newPod(withEphemeral, "app"), Observed: observed(running("debug", "d1"), running("app", "a1"))},
			[]corev1.ContainerStatus{known("app", "a1", isRunning()),
				with(known("debug", "d1", isRunning()), func(s *corev1.ContainerStatus) {
					s.Started, s.Ready = nil, false
				})}},
		{"startup probe has no verdict",
			Input{Pod: newPod(withProbes, "app"), Observed: observed(running("app", "a1"))},
			[]corev1.ContainerStatus{with(known("app", "a1", isRunning()), func(s *corev1.ContainerStatus) {
				s.Started, s.Ready = new(false), false
			})}},
		{"ready counts from started on",
			Input{Pod: newPod(withProbes, "app"), Observed: observed(running("app", "a1")),
				Probes: map[string]Probes{"a1": {Ready: true}}},
			[]corev1.ContainerStatus{with(known("app", "a1", isRunning()), func(s *corev1.ContainerStatus) {
				s.Started, s.Ready = new(false), false
			})}},
		{"started, not ready",
			Input{Pod: newPod(withProbes, "app"), Observed: observed(running("app", "a1")),
				Probes: map[string]Probes{"a1": {Started: true}}},
			[]corev1.ContainerStatus{with(known("app", "a1", isRunning()), func(s *corev1.ContainerStatus) {
				s.Ready = false
			})}},
		{"nobody probes it yet since the agent has begun",
			Input{Pod: newPod(withProbes, "app"), Observed: observed(running("app", "a1")),
				Previous: previous(known("app", "a1", isRunning()))},
			[]corev1.ContainerStatus{known("app", "a1", isRunning())}},
		{"started and ready",
			Input{Pod: newPod(withProbes, "app"), Observed: observed(running("app", "a1")),
				Probes: map[string]Probes{"a1": {Started: true, Ready: true}}},
			[]corev1.ContainerStatus{known("app", "a1", isRunning())}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.in.Node, tt.in.Now = node, now
			s := Compute(tt.in)
			got := append(append(s.InitContainerStatuses, s.ContainerStatuses...), s.EphemeralContainerStatuses...)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("containers (-want +got):\n%s", diff)
			}
		})
	}
}

// The restart count follows the newest container, even if the runtime removes containers, or does not know their state
// for a while.
func TestRestartCount(t *testing.T) {
	first, second := running("app", "a1"), restarted(running("app", "a2"), 1)
	noCount := running("app", "a2") // created when neither the runtime nor the logs showed the first
	unclear := pod.ContainerStatus{ID: "a1", Name: "app", State: pod.StateUnknown}
	for name, c := range map[string]struct {
		seen [][]pod.ContainerStatus
		want []int32
	}{
		"runs, ends, runs": {[][]pod.ContainerStatus{{first}, {exited("app", "a1", 1)},
			{second, exited("app", "a1", 1)}}, []int32{0, 0, 1}},
		"the agent restarts in between": {[][]pod.ContainerStatus{{first}, {second, exited("app", "a1", 1)}},
			[]int32{0, 1}},
		"the first is collected": {[][]pod.ContainerStatus{{first}, {exited("app", "a1", 1)},
			{second}}, []int32{0, 0, 1}},
		"the first is collected unseen": {[][]pod.ContainerStatus{{first}, {second}}, []int32{0, 1}},
		"a state that nobody knows, for a while": {[][]pod.ContainerStatus{{first}, {unclear}, {unclear}, {first},
			{first}}, []int32{0, 0, 0, 0, 0}},
		"a state that nobody knows, then another": {[][]pod.ContainerStatus{{first}, {unclear},
			{second, exited("app", "a1", 137)}}, []int32{0, 0, 1}},
		"lost": {[][]pod.ContainerStatus{{first}, {}, {}, {second}, {second}},
			[]int32{0, 1, 1, 1, 1}},
		"lost and found": {[][]pod.ContainerStatus{{first}, {}, {}, {first}, {first}},
			[]int32{0, 1, 1, 0, 0}},
		"lost and found again and again": {[][]pod.ContainerStatus{{second}, {}, {second}, {}, {second}},
			[]int32{1, 2, 1, 2, 1}},
		"ended and removed": {[][]pod.ContainerStatus{{exited("app", "a1", 1)}, {}, {}, {second}},
			[]int32{0, 0, 0, 1}},
		"without a count of its own": {[][]pod.ContainerStatus{{exited("app", "a1", 1)}, {}, {noCount},
			{noCount}}, []int32{0, 0, 1, 1}},
		"the newest is removed": {[][]pod.ContainerStatus{{restarted(exited("app", "a2", 1), 1),
			exited("app", "a1", 1)}, {exited("app", "a1", 1)},
			{restarted(running("app", "a3"), 1), exited("app", "a1", 1)}}, []int32{1, 1, 2}},
		"created, not started, and made again": {[][]pod.ContainerStatus{{first},
			{restarted(created("app", "a2"), 1), exited("app", "a1", 1)},
			{restarted(running("app", "a3"), 1), exited("app", "a1", 1)}}, []int32{0, 1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			var last corev1.PodStatus
			var got []int32
			for _, seen := range c.seen {
				last = Compute(Input{Pod: newPod(nil, "app"), Observed: observed(seen...), Previous: last, Node: node,
					Now: now})
				got = append(got, last.ContainerStatuses[0].RestartCount)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("counts (-want +got):\n%s", diff)
			}
		})
	}
}

func container(name string) pod.Container {
	return pod.Container{Container: &corev1.Container{Name: name}}
}

func isTerminatedUnknown(message string) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137,
		Reason: "ContainerStatusUnknown", Message: message}}
}

func previous(apps ...corev1.ContainerStatus) corev1.PodStatus {
	return corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: apps}
}

func withEphemeral(p *corev1.Pod) {
	p.Spec.EphemeralContainers = []corev1.EphemeralContainer{
		{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "img"}}}
}

func withProbes(p *corev1.Pod) {
	p.Spec.Containers[0].StartupProbe, p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{}, &corev1.Probe{}
}

func TestPhase(t *testing.T) {
	type outcome struct {
		Phase           corev1.PodPhase
		Reason, Message string
	}
	deadline := &pod.Stop{Reason: "DeadlineExceeded", Message: "too long"}
	evicted := &pod.Stop{Reason: "Evicted", Message: "The node was low on resource: memory."}
	tests := []struct {
		name string
		in   Input
		want outcome
	}{
		{"nothing yet", Input{Pod: newPod(nil, "a")}, outcome{Phase: corev1.PodPending}},
		{"not admitted yet",
			Input{Pod: newPod(nil, "a"), Refused: &Refusal{Reason: "Waiting", Message: "for host port 80"}},
			outcome{corev1.PodPending, "Waiting", "for host port 80"}},
		{"init container runs", Input{Pod: newPod(withInit("i"), "a"), Observed: observed(running("i", "i1"))},
			outcome{Phase: corev1.PodPending}},
		{"sidecar runs, app does not", Input{Pod: newPod(withSidecar, "a"), Observed: observed(running("side", "s1"))},
			outcome{Phase: corev1.PodPending}},
		{"one of two runs", Input{Pod: newPod(nil, "a", "b"), Observed: observed(running("a", "a1"))},
			outcome{Phase: corev1.PodPending}},
		{"all run", Input{Pod: newPod(nil, "a", "b"), Observed: observed(running("a", "a1"), running("b", "b1"))},
			outcome{Phase: corev1.PodRunning}},
		{"sidecar restarts",
			Input{Pod: newPod(withSidecar, "a"), Observed: observed(running("a", "a1"), exited("side", "s1", 1))},
			outcome{Phase: corev1.PodRunning}},
		{"all crash", Input{Pod: newPod(nil, "a"), Observed: observed(exited("a", "a1", 1)),
			Plan: &plan.Plan{Waiting: []plan.Waiting{{Name: "a", Reason: reason.CrashLoopBackOff}}}},
			outcome{Phase: corev1.PodRunning}},
		{"ended well",
			Input{Pod: newPod(nil, "a"), Observed: observed(exited("a", "a1", 0)), Plan: &plan.Plan{Done: true}},
			outcome{Phase: corev1.PodSucceeded}},
		{"ended badly",
			Input{Pod: newPod(nil, "a"), Observed: observed(exited("a", "a1", 1)),
				Plan: &plan.Plan{Done: true, Failed: true}}, outcome{Phase: corev1.PodFailed}},
		{"ended, sidecar still stops",
			Input{Pod: newPod(withSidecar, "a"), Observed: observed(running("side", "s1"), exited("a", "a1", 0)),
				Plan: &plan.Plan{Done: true}, Stop: &pod.Stop{Reason: "Completed"}}, outcome{Phase: corev1.PodRunning}},
		{"deleted, still stopping",
			Input{Pod: newPod(nil, "a"), Observed: observed(exited("a", "a1", 0)), Stop: &pod.Stop{Reason: "Deleted"}},
			outcome{Phase: corev1.PodRunning}},
		{"deleted, all ended well",
			Input{Pod: newPod(nil, "a"), Observed: observed(exited("a", "a1", 0)), Stop: &pod.Stop{Reason: "Deleted"},
				Terminated: true}, outcome{Phase: corev1.PodSucceeded}},
		{"deleted, one was killed",
			Input{Pod: newPod(nil, "a"), Observed: observed(exited("a", "a1", 137)), Stop: &pod.Stop{Reason: "Deleted"},
				Terminated: true}, outcome{Phase: corev1.PodFailed}},
		{"deleted before it began", Input{Pod: newPod(nil, "a"), Stop: &pod.Stop{Reason: "Deleted"}, Terminated: true},
			outcome{Phase: corev1.PodFailed}},
		{"deadline over, still stopping",
			Input{Pod: newPod(nil, "a"), Observed: observed(running("a", "a1")), Stop: deadline},
			outcome{Phase: corev1.PodRunning}},
		{"deadline over",
			Input{Pod: newPod(nil, "a"), Observed: observed(exited("a", "a1", 0)), Stop: deadline, Terminated: true},
			outcome{corev1.PodFailed, "DeadlineExceeded", "too long"}},
		{"evicted",
			Input{Pod: newPod(nil, "a"), Observed: observed(exited("a", "a1", 0)), Stop: evicted, Terminated: true},
			outcome{corev1.PodFailed, "Evicted", evicted.Message}},
		{"node shut down after it had ended well",
			Input{Pod: newPod(nil, "a"), Observed: observed(exited("a", "a1", 0)),
				Stop: &pod.Stop{Reason: "Terminated", Message: "node shutdown"}, Terminated: true},
			outcome{corev1.PodSucceeded, "Terminated", "node shutdown"}},
		{"final is final", Input{Pod: newPod(nil, "a"), Observed: observed(running("a", "a1")),
			Previous: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "m"}},
			outcome{corev1.PodFailed, "Evicted", "m"}},
		{"final by the API", Input{Pod: newPod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, "a")},
			outcome{Phase: corev1.PodSucceeded}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.in.Node, tt.in.Now = node, now
			s := Compute(tt.in)
			if diff := cmp.Diff(tt.want, outcome{s.Phase, s.Reason, s.Message}); diff != "" {
				t.Errorf("phase (-want +got):\n%s", diff)
			}
		})
	}
}

// Containers of a pod that waits for admission have the kubelet's reason, and a message that says what the pod waits
// for. Admission that has not answered yet gives no message.
func TestWaitingForAdmission(t *testing.T) {
	first := corev1.ContainerStateWaiting{Reason: reason.PodInitializing}
	named := corev1.ContainerStateWaiting{Reason: reason.PodInitializing, Message: "waiting for pod b to end"}
	for _, tt := range []struct {
		name    string
		pod     *pod.Pod
		refused *Refusal
		want    corev1.ContainerStateWaiting
	}{
		{"no answer yet", newPod(nil, "a"), nil, corev1.ContainerStateWaiting{Reason: reason.ContainerCreating}},
		{"no answer yet, with init container", newPod(withInit("i"), "a"), nil, first},
		{"not yet", newPod(nil, "a"), &Refusal{Reason: "OutOfcpu", Message: named.Message},
			corev1.ContainerStateWaiting{Reason: reason.ContainerCreating, Message: named.Message}},
		{"not yet, with init container", newPod(withInit("i"), "a"),
			&Refusal{Reason: "OutOfcpu", Message: named.Message}, named},
	} {
		s := Compute(Input{Pod: tt.pod, Now: now, Refused: tt.refused})
		for _, c := range append(s.InitContainerStatuses, s.ContainerStatuses...) {
			if diff := cmp.Diff(corev1.ContainerState{Waiting: &tt.want}, c.State); diff != "" {
				t.Errorf("%s: %s (-want +got):\n%s", tt.name, c.Name, diff)
			}
		}
	}
}

// The waiting containers of a pod that the node cannot run show Blocked. A container that an earlier agent started
// shows Running.
func TestBlocked(t *testing.T) {
	in := Input{Pod: newPod(withInit("i"), "a"), Now: now,
		Refused: &Refusal{Reason: "AppArmor", Message: "not here", Blocked: true}}
	s := Compute(in)
	for _, c := range append(s.InitContainerStatuses, s.ContainerStatuses...) {
		want := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "Blocked", Message: "not here"}}
		if diff := cmp.Diff(want, c.State); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.Name, diff)
		}
	}
	in.Previous, in.Refused = s, nil
	if w := Compute(in).ContainerStatuses[0].State.Waiting; w == nil || w.Reason == "Blocked" {
		t.Errorf("once it is let in: %+v", w)
	}
	in.Observed, in.Refused = observed(running("a", "a1")), &Refusal{Reason: "AppArmor"}
	if s := Compute(in).ContainerStatuses[0].State; s.Running == nil {
		t.Errorf("it runs, and is %+v", s)
	}
}

// If this node has no status of a pod, it continues from the status in the API server's object. If it has one, it takes
// over the changes that others have made to that object.
func TestComputePodOfTheAPI(t *testing.T) {
	crash := isTerminated("a1", 1, "Error", "")
	gate := corev1.PodCondition{Type: "example.com/gate", Status: corev1.ConditionTrue, LastTransitionTime: at(5)}
	target := corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionFalse,
		LastTransitionTime: at(9)}
	p := newPod(func(p *corev1.Pod) {
		p.Status = corev1.PodStatus{Phase: corev1.PodRunning, StartTime: new(at(-9)), QOSClass: corev1.PodQOSBestEffort,
			Conditions: []corev1.PodCondition{gate, target,
				{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: at(-2)}},
			ContainerStatuses: []corev1.ContainerStatus{with(known("app", "a1", isRunning()),
				func(s *corev1.ContainerStatus) {
					s.RestartCount = 4
				})}}
	}, "app")
	p.Source = pod.SourceAPI
	type seen struct {
		Phase      corev1.PodPhase
		Reason     string
		StartTime  metav1.Time
		QOS        corev1.PodQOSClass
		Restarts   int32
		Last       *corev1.ContainerStateTerminated
		Conditions []corev1.PodCondition
	}
	look := func(s corev1.PodStatus) seen {
		c := s.ContainerStatuses[0]
		return seen{s.Phase, s.Reason, *s.StartTime, s.QOSClass, c.RestartCount, c.LastTerminationState.Terminated,
			[]corev1.PodCondition{*find(s.Conditions, "example.com/gate"),
				*find(s.Conditions, corev1.DisruptionTarget)}}
	}
	in := Input{Pod: p, Node: node, Now: now,
		Observed: observed(restarted(running("app", "a2"), 5), exited("app", "a1", 1))}
	want := seen{corev1.PodRunning, "", at(-9), corev1.PodQOSBestEffort, 5, crash.Terminated,
		[]corev1.PodCondition{gate, target}}
	got := Compute(in)
	if diff := cmp.Diff(want, look(got)); diff != "" {
		t.Errorf("without a status of its own (-want +got):\n%s", diff)
	}

	in.Previous = got
	find(in.Previous.Conditions, corev1.DisruptionTarget).Status = corev1.ConditionTrue // before the change
	ended := *p.Pod
	ended.Status.Phase, ended.Status.Reason = corev1.PodFailed, "NodeLost"
	in.Pod = &pod.Pod{Pod: &ended, Source: pod.SourceAPI}
	want.Phase, want.Reason = corev1.PodFailed, "NodeLost"
	if diff := cmp.Diff(want, look(Compute(in))); diff != "" {
		t.Errorf("ended by somebody else (-want +got):\n%s", diff)
	}

	in.Pod = p
	in.Previous.Conditions = append(in.Previous.Conditions,
		corev1.PodCondition{Type: "example.com/removed", Status: corev1.ConditionTrue})
	if c := find(Compute(in).Conditions, "example.com/removed"); c != nil {
		t.Errorf("a condition that somebody has removed is back: %+v", c)
	}
}

// The message of a container that the kernel killed says whose memory ran out, also if that is known late.
func TestMessageNamesWhoseMemoryRanOut(t *testing.T) {
	end := exited("a", "a1", 137)
	for name, test := range map[string]struct {
		code                          int32
		why, cause, own, before, want string
	}{
		"known":               {why: reason.OOMKilled, cause: "x", want: "killed because x"},
		"with last words":     {why: reason.OOMKilled, cause: "x", own: "bye", want: "killed because x: bye"},
		"not known":           {why: reason.OOMKilled, own: "bye", want: "bye"},
		"known late":          {why: reason.OOMKilled, cause: "x", before: " ", want: "killed because x"},
		"late for last words": {why: reason.OOMKilled, cause: "x", before: "bye", want: "bye"},
		"known to the kernel": {why: "Error", cause: "x", want: "killed because x"},
		"another end":         {code: 1, why: "Error", cause: "x"},
	} {
		if end.Reason, end.ExitCode = test.why, 137; test.code != 0 {
			end.ExitCode = test.code
		}
		in := Input{Pod: newPod(nil, "a"), Observed: observed(end), Messages: map[string]string{"a1": test.own},
			Killed: map[string]string{"a1": test.cause}, Node: node, Now: now}
		if test.before != "" {
			in.Previous.Phase = corev1.PodRunning
			in.Previous.ContainerStatuses = []corev1.ContainerStatus{{Name: "a", ContainerID: "containerd://a1",
				State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
					ContainerID: "containerd://a1", Message: strings.TrimSpace(test.before)}}}}
		}
		s := Compute(in).ContainerStatuses[0]
		end := s.State.Terminated
		if end == nil {
			end = s.LastTerminationState.Terminated
		}
		if end == nil || end.Message != test.want ||
			(end.Reason == reason.OOMKilled) != (test.code == 0) {
			t.Errorf("%s: %+v, want the message %q", name, end, test.want)
		}
	}
}

func TestMessagesShareThePodsBytes(t *testing.T) {
	p := newPod(nil, "a", "b", "c", "d")
	long := strings.Repeat("x", 4095) + "é"
	s := Compute(Input{Pod: p, Observed: observed(exited("a", "a1", 1)), Messages: map[string]string{"a1": long},
		Node: node, Now: now})
	if got := len(s.ContainerStatuses[0].State.Terminated.Message); got != 12<<10/4 {
		t.Errorf("message of %d bytes, want a fourth of 12 KiB", got)
	}
	s = Compute(Input{Pod: newPod(nil, "a"), Observed: observed(exited("a", "a1", 1)),
		Messages: map[string]string{"a1": "a\xffb"}, Node: node, Now: now})
	if got := s.ContainerStatuses[0].State.Terminated.Message; got != "a\uFFFDb" {
		t.Errorf("message %q is not valid UTF-8 for the API", got)
	}
}
