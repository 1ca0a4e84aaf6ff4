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
