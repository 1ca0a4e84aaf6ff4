package nodeobject

import (
	"log/slog"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The answer to a call may come after the watch has told of the object's end.
func TestAnEndIsFinal(t *testing.T) {
	node := func(uid types.UID, version string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: uid, ResourceVersion: version}}
	}
	x := New(Options{Log: slog.New(slog.DiscardHandler)})
	gone := func() bool { _, gone := x.last(); return gone }
	x.hear(node("a", "10"), false)
	x.lose("9")
	if gone() {
		t.Error("a list from before it was made ends it")
	}
	x.lose("12")
	x.hear(node("a", "11"), false)
	if !gone() {
		t.Error("what was sent before the end counts")
	}
	x.hear(node("a", "11"), true)
	if gone() {
		t.Error("what is listed is not there")
	}
	x.lose("")
	x.hear(node("b", "14"), false)
	if gone() {
		t.Error("what was made anew is not there")
	}
}
