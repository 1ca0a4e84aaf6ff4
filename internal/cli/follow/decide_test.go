package follow

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func waits(reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}

func exits(code int32, reason string) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason}}
}

var runs = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}

// onePod returns a pod with one app container in this state.
func onePod(phase corev1.PodPhase, st corev1.ContainerStatus) *corev1.Pod {
	st.Name = "app"
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}},
		Status:     corev1.PodStatus{Phase: phase, ContainerStatuses: []corev1.ContainerStatus{st}},
	}
}

func with(p *corev1.Pod, kind corev1.PodConditionType, status corev1.ConditionStatus,
	reason, message string) *corev1.Pod {
	p.Status.Conditions = append(p.Status.Conditions,
		corev1.PodCondition{Type: kind, Status: status, Reason: reason, Message: message})
	return p
}

func deleting(p *corev1.Pod, grace int64) *corev1.Pod {
	p.DeletionTimestamp = &metav1.Time{}
	p.DeletionGracePeriodSeconds = &grace
	return p
}

func TestProgress(t *testing.T) {
	state := func(s corev1.ContainerState) corev1.ContainerStatus { return corev1.ContainerStatus{State: s} }
	first := corev1.ContainerStatus{ContainerID: "1", State: runs}
	second := corev1.ContainerStatus{ContainerID: "2", State: runs, RestartCount: 1}
	ended := corev1.ContainerStatus{ContainerID: "1", State: exits(0, "Completed")}
	const run, pending = corev1.PodRunning, corev1.PodPending
	tests := []struct {
		name    string
		was, is *corev1.Pod
		want    []string
	}{
		{"every start passes through this", nil, onePod(pending, state(waits("ContainerCreating", ""))), nil},
		{"not admitted yet", nil,
			with(onePod(pending, corev1.ContainerStatus{}), corev1.PodScheduled, corev1.ConditionFalse, "NotYet",
				"waits for a device"), []string{"waiting: NotYet: waits for a device"}},
		{"image", onePod(pending, state(waits("ContainerCreating", ""))),
			onePod(pending, state(waits("ErrImagePull", "no such image"))),
			[]string{"container app waits: ErrImagePull: no such image"}},
		{"image, still", onePod(pending, state(waits("ErrImagePull", "one"))),
			onePod(pending, state(waits("ErrImagePull", "two"))), nil},
		{"started and ready", onePod(pending, corev1.ContainerStatus{}),
			with(onePod(run, first), corev1.PodReady, corev1.ConditionTrue, "", ""),
			[]string{"container app started", "ready"}},
		{"nothing new", onePod(run, first), onePod(run, first), nil},
		{"no longer ready", with(onePod(run, first), corev1.PodReady, corev1.ConditionTrue, "", ""),
			with(onePod(run, first), corev1.PodReady, corev1.ConditionFalse, "ContainersNotReady", "unready: [app]"),
			[]string{"not ready: unready: [app]"}},
		{"ended", onePod(run, first), onePod(run, ended), []string{"container app ended with exit code 0"}},
		{"created, then started",
			onePod(pending, corev1.ContainerStatus{ContainerID: "1", State: waits("ContainerCreating", "")}),
			onePod(run, first), []string{"container app started"}},
		{"started and ended between two looks", nil, onePod(run, ended),
			[]string{"container app ended with exit code 0"}},
		{"killed", onePod(run, first),
			onePod(run, corev1.ContainerStatus{ContainerID: "1", State: exits(137, "OOMKilled")}),
			[]string{"container app ended with exit code 137: OOMKilled"}},
		{"restarted", onePod(run, ended), onePod(run, second), []string{"container app started again (restart 1)"}},
		{"succeeded", onePod(run, ended), onePod(corev1.PodSucceeded, ended), []string{"succeeded"}},
		{"rejected", nil,
			&corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfcpu", Message: "too big"}},
			[]string{"failed: OutOfcpu: too big"}},
		{"stopping", onePod(run, first), deleting(onePod(run, first), 90), []string{"stopping within 1m30s"}},
		{"stopping makes unready", with(onePod(run, first), corev1.PodReady, corev1.ConditionTrue, "", ""),
			deleting(onePod(run, first), 0), []string{"stopping within 0s"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, progress(tt.was, tt.is)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestExitStatus(t *testing.T) {
	ended := func(phase corev1.PodPhase, code int32) *corev1.Pod {
		return onePod(phase, corev1.ContainerStatus{State: exits(code, "")})
	}
	backoff := onePod(corev1.PodRunning,
		corev1.ContainerStatus{State: waits("CrashLoopBackOff", ""), LastTerminationState: exits(4, "")})
	withSidecar := ended(corev1.PodSucceeded, 0)
	always := corev1.ContainerRestartPolicyAlways
	withSidecar.Spec.InitContainers = []corev1.Container{{Name: "proxy", RestartPolicy: &always}}
	withSidecar.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "proxy", State: exits(143, "")}}
	failedInit := onePod(corev1.PodFailed, corev1.ContainerStatus{State: waits("PodInitializing", "")})
	failedInit.Spec.InitContainers = []corev1.Container{{Name: "setup"}}
	failedInit.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "setup", State: exits(7, "")}}
	tests := []struct {
		name string
		pods []*corev1.Pod
		want int
	}{
		{"no pods were seen", nil, 1},
		{"succeeded", []*corev1.Pod{ended(corev1.PodSucceeded, 0)}, 0},
		{"stopped, ended with 0", []*corev1.Pod{ended(corev1.PodRunning, 0)}, 0},
		{"one failed", []*corev1.Pod{ended(corev1.PodFailed, 3), ended(corev1.PodSucceeded, 0)}, 3},
		{"two failed", []*corev1.Pod{ended(corev1.PodFailed, 3), ended(corev1.PodFailed, 3)}, 1},
		{"a code that is no exit status", []*corev1.Pod{ended(corev1.PodFailed, 256)}, 1},
		{"stopped while it waited for a restart", []*corev1.Pod{backoff}, 4},
		{"init container failed", []*corev1.Pod{failedInit}, 7},
		{"a sidecar does not count", []*corev1.Pod{withSidecar}, 0},
		{"rejected", []*corev1.Pod{onePod(corev1.PodFailed, corev1.ContainerStatus{})}, 1},
		{"stopped before it ran",
			[]*corev1.Pod{onePod(corev1.PodPending, corev1.ContainerStatus{State: waits("ErrImagePull", "")})}, 1},
		{"its end was not seen", []*corev1.Pod{onePod(corev1.PodRunning, corev1.ContainerStatus{State: runs})}, 1},
	}
	for _, tt := range tests {
		if got := exitStatus(tt.pods); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

func TestEventLine(t *testing.T) {
	for want, e := range map[string]*corev1.Event{
		"Pulling: image": {Type: corev1.EventTypeNormal, Reason: "Pulling", Message: "image"},
		"app: Pulled: in 3s": {Type: corev1.EventTypeNormal, Reason: "Pulled", Message: "in 3s",
			InvolvedObject: corev1.ObjectReference{FieldPath: "spec.containers{app}"}},
		"FailedMount: no disk": {Type: corev1.EventTypeWarning, Reason: "FailedMount", Message: "no disk"},
	} {
		if got := eventLine(e, false); got != want {
			t.Errorf("%s: %q, want %q", e.Reason, got, want)
		}
	}
	for _, e := range []*corev1.Event{
		{Type: corev1.EventTypeNormal, Reason: "Started"}, {Type: corev1.EventTypeWarning, Reason: "BackOff"},
		{Type: corev1.EventTypeNormal, Reason: "Scheduled"},
		{Type: corev1.EventTypeNormal, Reason: "Pulled", Message: "Container image already present on machine"},
	} {
		if got := eventLine(e, false); got != "" {
			t.Errorf("%s: %q, want nothing", e.Reason, got)
		}
	}
	failed := &corev1.Event{Type: corev1.EventTypeWarning, Reason: "Unhealthy", Message: "Readiness probe failed"}
	if got := eventLine(failed, false); got != "Unhealthy: Readiness probe failed" {
		t.Errorf("a probe fails: %q", got)
	}
	if got := eventLine(failed, true); got != "" {
		t.Errorf("a probe fails while the pod is ending: %q", got)
	}
}

func TestStuckNamesTheImageThatCannotBePulled(t *testing.T) {
	for why, want := range map[string]string{
		"ErrImageNeverPull":          "container app: ErrImageNeverPull: no",
		"InvalidImageName":           "container app: InvalidImageName: no",
		"ImagePullBackOff":           "container app: ImagePullBackOff: no",
		"ErrImagePull":               "", // the first try may fail for a short time
		"CreateContainerConfigError": "", // an object may follow
		"CrashLoopBackOff":           "",
	} {
		got, next := stuck(onePod(corev1.PodPending, corev1.ContainerStatus{State: waits(why, "no")}))
		if got != want || (next == "") != (want == "") {
			t.Errorf("%s: %q, next %q, want %q", why, got, next, want)
		}
	}
	if got, _ := stuck(onePod(corev1.PodRunning, corev1.ContainerStatus{State: runs})); got != "" {
		t.Errorf("a pod that runs: %q", got)
	}
}
