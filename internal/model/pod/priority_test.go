package pod

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestPriority(t *testing.T) {
	for name, test := range map[string]struct {
		spec corev1.PodSpec
		want int32
	}{
		"none": {corev1.PodSpec{}, 0},
		"its own": {corev1.PodSpec{Priority: new(int32(-7)),
			PriorityClassName: "system-node-critical"}, -7},
		"of the node":                {corev1.PodSpec{PriorityClassName: "system-node-critical"}, 2_000_001_000},
		"of the cluster":             {corev1.PodSpec{PriorityClassName: "system-cluster-critical"}, 2_000_000_000},
		"of a class nobody here has": {corev1.PodSpec{PriorityClassName: "gold"}, 0},
	} {
		if got := Priority(&corev1.Pod{Spec: test.spec}); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}

func TestStatic(t *testing.T) {
	for source, want := range map[string]bool{"file": true, "http": true, "local": false, "api": false, "": false} {
		p := &corev1.Pod{}
		p.Annotations = map[string]string{AnnotationConfigSource: source}
		if got := Static(p); got != want {
			t.Errorf("%q: %v", source, got)
		}
	}
}

func TestStaticUID(t *testing.T) {
	for uid, want := range map[types.UID]bool{
		"0123456789abcdef0123456789abcdef":     true,
		"01234567-89ab-cdef-0123-456789abcdef": false, // of an API server
		"0123456789abcdef":                     false,
		"":                                     false,
	} {
		if got := StaticUID(uid); got != want {
			t.Errorf("%q: %v", uid, got)
		}
	}
}
