package server

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

func podV(uid types.UID, version string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: uid, Labels: map[string]string{"v": version}}}
}

func TestNotices(t *testing.T) {
	key := types.NamespacedName{Name: "web"}
	one, two, hidden, other := podV("a", "1"), podV("a", "2"), podV("a", "hidden"), podV("b", "1")
	match := func(p *corev1.Pod) bool { return p != nil && p.Labels["v"] != "hidden" }
	tests := []struct {
		name   string
		known  *corev1.Pod
		change podChange
		want   []notice
		left   *corev1.Pod
	}{
		{"new", nil, podChange{Value: one}, []notice{{watch.Added, one}}, one},
		{"changed", one, podChange{Value: two}, []notice{{watch.Modified, two}}, two},
		{"the same again", one, podChange{Value: one}, nil, one},
		{"deleted, with its last state", one, podChange{Value: two, Deleted: true}, []notice{{watch.Deleted, two}},
			nil},
		{"deleted without a state", one, podChange{Deleted: true}, []notice{{watch.Deleted, one}}, nil},
		{"came and went between two looks", nil, podChange{Value: one, Deleted: true},
			[]notice{{watch.Added, one}, {watch.Deleted, one}}, nil},
		{"unknown and gone", nil, podChange{Deleted: true}, nil, nil},
		{"replaced by another of its name", one, podChange{Value: other},
			[]notice{{watch.Deleted, one}, {watch.Added, other}}, other},
		{"no longer selected", one, podChange{Value: hidden}, []notice{{watch.Deleted, hidden}}, nil},
		{"newly selected", nil, podChange{Value: two}, []notice{{watch.Added, two}}, two},
		{"not selected", nil, podChange{Value: hidden}, nil, nil},
		{"not selected and gone", nil, podChange{Value: hidden, Deleted: true}, nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			known := map[types.NamespacedName]*corev1.Pod{}
			if tt.known != nil {
				known[key] = tt.known
			}
			tt.change.Key = key
			if diff := cmp.Diff(tt.want, notices(known, tt.change, match)); diff != "" {
				t.Errorf("notices (-want +got):\n%s", diff)
			}
			if known[key] != tt.left {
				t.Errorf("the watcher is left with %v, want %v", known[key], tt.left)
			}
		})
	}
}

func TestChooseInstance(t *testing.T) {
	n := func(n int64) *int64 { return &n }
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	backoff := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
	tests := []struct {
		name     string
		status   corev1.ContainerStatus
		previous bool
		asked    *int64
		want     int
		err      string
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
			status: corev1.ContainerStatus{State: running, LastTerminationState: ended, RestartCount: 3}, asked: n(1),
			want: 1},
		{name: "a certain one that is not there yet", status: corev1.ContainerStatus{State: running}, asked: n(1),
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
			got, err := chooseInstance(p, &corev1.PodLogOptions{Container: "app", Previous: tt.previous}, tt.asked)
			if message := text(err); got != tt.want || message != tt.err {
				t.Errorf("got %d, %q; want %d, %q", got, message, tt.want, tt.err)
			}
		})
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestSelector(t *testing.T) {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "u",
			Labels: map[string]string{"app": "web"}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	tests := []struct {
		namespace, labels, fields string
		want                      bool
		err                       string
	}{
		{want: true},
		{namespace: "shop", want: true},
		{namespace: "other"},
		{labels: "app in (web, api)", want: true},
		{labels: "!app"},
		{fields: "metadata.name=web,status.phase!=Pending", want: true},
		{fields: "metadata.uid=v"},
		{labels: "=", err: `labelSelector "=": found '=', expected: !, identifier, or 'end of string'`},
		{fields: "web", err: `fieldSelector "web": invalid selector: 'web'; can't understand 'web'`},
		{fields: "spec.image=web", err: `fieldSelector: unknown field "spec.image"`},
	}
	for _, tt := range tests {
		sel, err := newSelector(tt.namespace, tt.labels, tt.fields, podFields(&corev1.Pod{}))
		if text(err) != tt.err {
			t.Errorf("%+v: error %q", tt, text(err))
		}
		if err == nil && sel.pod(p) != tt.want {
			t.Errorf("%+v: selected %v", tt, !tt.want)
		}
	}
}
