package nodeobject

import (
	"log/slog"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The response to a call may arrive after the watch has reported that the object was deleted.
func TestALateResponseDoesNotReviveADeletedObject(t *testing.T) {
	node := func(uid types.UID, version string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: uid, ResourceVersion: version}}
	}
	x := New(Options{Latest: NewLatest("n"), Log: slog.New(slog.DiscardHandler)})
	gone := func() bool { _, gone, _ := x.last(); return gone }
	x.receive(node("a", "10"), false)
	x.remove("9")
	if gone() {
		t.Error("a list from before it was made ends it")
	}
	x.remove("12")
	x.receive(node("a", "11"), false)
	if !gone() {
		t.Error("what was sent before the end counts")
	}
	x.receive(node("a", "11"), true)
	if gone() {
		t.Error("what is listed is not there")
	}
	x.remove("")
	x.receive(node("b", "14"), false)
	if gone() {
		t.Error("what was made anew is not there")
	}
}
