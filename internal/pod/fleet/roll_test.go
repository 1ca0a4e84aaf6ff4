package fleet

import (
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/model/pod"
)

// A pod that no source wants any more is known until nothing of it is left.
func TestRollKnowsDesiredPodsAndMembers(t *testing.T) {
	r := Roll{Desired: store.New[types.UID, *pod.Pod](), Fleet: New(time.Now, slog.New(slog.DiscardHandler))}
	r.Desired.Put("wanted", &pod.Pod{Pod: &corev1.Pod{}})
	r.Fleet.members["ending"] = &member{pod: &pod.Pod{Pod: &corev1.Pod{}}}
	for uid, want := range map[types.UID]bool{"wanted": true, "ending": true, "gone": false} {
		if got := r.Known(uid); got != want {
			t.Errorf("known %s: %v", uid, got)
		}
		if r.Working(uid) {
			t.Errorf("%s has a worker", uid)
		}
	}
}

// Without an agent, commands show the pods that hold resources. Nothing of these pods runs in this process.
func TestRestoredPodsHoldTheirResourcesUntilTheyHaveEnded(t *testing.T) {
	f := New(time.Now, slog.New(slog.DiscardHandler))
	runs := &pod.Pod{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "runs", UID: "runs"}}}
	ended := &pod.Pod{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "ended", UID: "ended"}}}
	f.Restore([]*pod.Pod{runs, ended}, map[types.UID]bool{"ended": true})
	<-f.Settled()
	if got := f.Holders(); len(got) != 1 || got[0].Pod != runs {
		t.Errorf("holders: %v", got)
	}
	if m, ok := f.Member("ended"); !ok || m.Working || !m.Verdict.Ended {
		t.Errorf("the ended pod: %+v, %t", m, ok)
	}
}
