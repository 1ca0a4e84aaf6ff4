package pod

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
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
