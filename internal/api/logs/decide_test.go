package logs

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestChooseInstance(t *testing.T) {
	n := func(n int64) *int64 { return &n }
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	backoff := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
	tests := []struct {
		name      string
		status    corev1.ContainerStatus
		previous  bool
		requested *int64
		want      int
		err       string
	}{
		{name: "running", status: corev1.ContainerStatus{State: running}},
		{name: "ended", status: corev1.ContainerStatus{State: ended, RestartCount: 2}, want: 2},
		{name: "previous of a running one",
			status:   corev1.ContainerStatus{State: running, LastTerminationState: ended, RestartCount: 3},
			previous: true, want: 2},
		{name: "waits for its restart",
			status: corev1.ContainerStatus{State: backoff, LastTerminationState: ended, RestartCount: 3}, want: 3},
		{name: "previous of one that waits for its restart",
			status:   corev1.ContainerStatus{State: backoff, LastTerminationState: ended, RestartCount: 3},
			previous: true, want: 3},
		{name: "previous of one that is made and not started", status: corev1.ContainerStatus{
			ContainerID: "containerd://b", RestartCount: 3,
			State: corev1.ContainerState{
				Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}},
			LastTerminationState: corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{ContainerID: "containerd://a"}},
		}, previous: true, want: 2},
		{name: "a certain one",
			status:    corev1.ContainerStatus{State: running, LastTerminationState: ended, RestartCount: 3},
			requested: n(1),
			want:      1},
		{name: "a certain one that is not there yet", status: corev1.ContainerStatus{State: running}, requested: n(1),
			err: `container "app" in pod "web" has no instance 1`},
		{name: "never restarted", status: corev1.ContainerStatus{State: running}, previous: true,
			err: `previous terminated container "app" in pod "web" not found`},
		{name: "waiting",
			status: corev1.ContainerStatus{
				State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}}},
			err: `container "app" in pod "web" is waiting to start: image can't be pulled`},
		{name: "waiting to try again",
			status: corev1.ContainerStatus{
				State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}},
			err: `container "app" in pod "web" is waiting to start: trying and failing to pull image`},
		{name: "waiting for something else",
			status: corev1.ContainerStatus{
				State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CreateContainerError"}}},
			err: `container "app" in pod "web" is waiting to start: CreateContainerError`},
		{name: "nothing known", err: `container "app" in pod "web" is waiting to start: its pod is pending`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.status.Name = "app"
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"},
				Status: corev1.PodStatus{Phase: corev1.PodPending,
					ContainerStatuses: []corev1.ContainerStatus{tt.status}}}
			got, err := chooseInstance(p, &corev1.PodLogOptions{Container: "app", Previous: tt.previous}, tt.requested)
			if message := text(err); got != tt.want || message != tt.err {
				t.Errorf("got %d, %q; want %d, %q", got, message, tt.want, tt.err)
			}
		})
	}
}

// text returns the message of an error, or "".
func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
