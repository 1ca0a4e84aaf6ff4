package printer

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func waiting(reason string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
}

func ended(code int32, reason string) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason,
		FinishedAt: metav1.NewTime(t0)}}
}

var running = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(t0)}}

// statuses returns one container status for each state. Running containers are ready.
func statuses(states ...corev1.ContainerState) []corev1.ContainerStatus {
	var all []corev1.ContainerStatus
	for i, s := range states {
		all = append(all, corev1.ContainerStatus{Name: string(rune('a' + i)), State: s, Ready: s.Running != nil})
	}
	return all
}

func specs(n int) []corev1.Container {
	var all []corev1.Container
	for i := range n {
		all = append(all, corev1.Container{Name: string(rune('a' + i))})
	}
	return all
}

// sidecar turns the i-th init container into a sidecar.
func sidecar(p *corev1.Pod, i int, started bool) {
	always := corev1.ContainerRestartPolicyAlways
	p.Spec.InitContainers[i].RestartPolicy = &always
	p.Status.InitContainerStatuses[i].Started = &started
}

func TestSummarize(t *testing.T) {
	tests := []struct {
		name  string
		phase corev1.PodPhase
		init  []corev1.ContainerState
		app   []corev1.ContainerState
		more  func(*corev1.Pod)
		want  summary
	}{
		{name: "nothing known yet", phase: corev1.PodPending, want: summary{total: 1, status: "Pending"}},
		{name: "creating", phase: corev1.PodPending, app: []corev1.ContainerState{waiting("ContainerCreating")},
			want: summary{total: 1, status: "ContainerCreating"}},
		{name: "running", phase: corev1.PodRunning, app: []corev1.ContainerState{running, running},
			want: summary{ready: 2, total: 2, status: "Running"}},
		{name: "not ready", phase: corev1.PodRunning, app: []corev1.ContainerState{running}, more: func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].Ready = false
		}, want: summary{total: 1, status: "Running"}},
		{name: "crash loop", phase: corev1.PodRunning,
			app: []corev1.ContainerState{waiting("CrashLoopBackOff"), running},
			more: func(p *corev1.Pod) {
				p.Status.ContainerStatuses[0].RestartCount = 3
				p.Status.ContainerStatuses[0].LastTerminationState = ended(1, "Error")
			}, want: summary{ready: 1, total: 2, status: "CrashLoopBackOff", restarts: 3, lastRestart: t0}},
		{name: "the first container's reason counts", phase: corev1.PodPending,
			app:  []corev1.ContainerState{waiting("ErrImagePull"), waiting("CreateContainerError")},
			want: summary{total: 2, status: "ErrImagePull"}},
		{name: "failed", phase: corev1.PodFailed, app: []corev1.ContainerState{ended(1, "Error")},
			want: summary{total: 1, status: "Error"}},
		{name: "ended without a reason", phase: corev1.PodFailed, app: []corev1.ContainerState{ended(3, "")},
			want: summary{total: 1, status: "ExitCode:3"}},
		{name: "ended by a signal", phase: corev1.PodFailed, app: []corev1.ContainerState{ended(137, "")},
			more: func(p *corev1.Pod) {
				p.Status.ContainerStatuses[0].State.Terminated.Signal = 9
			}, want: summary{total: 1, status: "Signal:9"}},
		{name: "completed", phase: corev1.PodSucceeded, app: []corev1.ContainerState{ended(0, "Completed")},
			want: summary{total: 1, status: "Completed"}},
		{name: "one completed, one runs", phase: corev1.PodRunning,
			app:  []corev1.ContainerState{ended(0, "Completed"), running},
			want: summary{ready: 1, total: 2, status: "NotReady"}},
		{name: "one completed, the pod is ready", phase: corev1.PodRunning,
			app: []corev1.ContainerState{ended(0, "Completed"), running},
			more: func(p *corev1.Pod) {
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			}, want: summary{ready: 1, total: 2, status: "Running"}},
		{name: "rejected", phase: corev1.PodFailed, more: func(p *corev1.Pod) {
			p.Status.Reason = "OutOfcpu"
		}, want: summary{total: 1, status: "OutOfcpu"}},
		{name: "gated", phase: corev1.PodPending, more: func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled,
				Reason: corev1.PodReasonSchedulingGated}}
		}, want: summary{total: 1, status: "SchedulingGated"}},
		{name: "first init container runs", phase: corev1.PodPending,
			init: []corev1.ContainerState{running, waiting("PodInitializing")},
			want: summary{total: 1, status: "Init:0/2"}},
		{name: "second init container runs", phase: corev1.PodPending,
			init: []corev1.ContainerState{ended(0, "Completed"), running}, want: summary{total: 1, status: "Init:1/2"}},
		{name: "init container fails", phase: corev1.PodPending, init: []corev1.ContainerState{ended(1, "Error")},
			more: func(p *corev1.Pod) {
				p.Status.InitContainerStatuses[0].RestartCount = 2
			}, want: summary{total: 1, status: "Init:Error", restarts: 2}},
		{name: "init container was killed", phase: corev1.PodPending, init: []corev1.ContainerState{ended(137, "")},
			want: summary{total: 1, status: "Init:ExitCode:137"}},
		{name: "init container waits", phase: corev1.PodPending,
			init: []corev1.ContainerState{waiting("ImagePullBackOff")},
			want: summary{total: 1, status: "Init:ImagePullBackOff"}},
		{name: "init is over: its restarts no longer count", phase: corev1.PodRunning,
			init: []corev1.ContainerState{ended(0, "Completed")}, app: []corev1.ContainerState{running},
			more: func(p *corev1.Pod) {
				p.Status.InitContainerStatuses[0].RestartCount = 2
			}, want: summary{ready: 1, total: 1, status: "Running"}},
		{name: "sidecar starts", phase: corev1.PodPending, init: []corev1.ContainerState{running},
			more: func(p *corev1.Pod) {
				sidecar(p, 0, false)
			}, want: summary{total: 2, status: "Init:0/1"}},
		{name: "sidecar runs", phase: corev1.PodRunning, init: []corev1.ContainerState{running},
			app: []corev1.ContainerState{running},
			more: func(p *corev1.Pod) {
				sidecar(p, 0, true)
				p.Status.InitContainerStatuses[0].RestartCount = 1
			}, want: summary{ready: 2, total: 2, status: "Running", restarts: 1}},
		{name: "terminating", phase: corev1.PodRunning, app: []corev1.ContainerState{running},
			more: func(p *corev1.Pod) {
				p.DeletionTimestamp = &metav1.Time{Time: t0}
			}, want: summary{ready: 1, total: 1, status: "Terminating"}},
		{name: "completed and deleted", phase: corev1.PodSucceeded, app: []corev1.ContainerState{ended(0, "Completed")},
			more: func(p *corev1.Pod) {
				p.DeletionTimestamp = &metav1.Time{Time: t0}
			}, want: summary{total: 1, status: "Completed"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := &corev1.Pod{
				Spec: corev1.PodSpec{Containers: specs(max(len(tt.app), 1)),
					InitContainers: specs(len(tt.init))},
				Status: corev1.PodStatus{Phase: tt.phase, ContainerStatuses: statuses(tt.app...),
					InitContainerStatuses: statuses(tt.init...)},
			}
			if tt.more != nil {
				tt.more(p)
			}
			if diff := cmp.Diff(tt.want, summarize(p), cmp.AllowUnexported(summary{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
