package pod

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestManifest(t *testing.T) {
	spec := corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}}
	existing := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "n", UID: "u", ResourceVersion: "7",
			Labels: map[string]string{"app": "web"},
			Annotations: map[string]string{"mine": "1", AnnotationConfigHash: "u", AnnotationConfigSource: "api",
				AnnotationConfigSeen: "now", AnnotationMirror: "u"}},
		Spec:   *spec.DeepCopy(),
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	existing.Spec.NodeName = "node1"
	existing.Spec.EphemeralContainers = make([]corev1.EphemeralContainer, 1)
	before := existing.DeepCopy()
	want := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "n", Labels: map[string]string{"app": "web"},
			Annotations: map[string]string{"mine": "1"}},
		Spec: spec,
	}
	if diff := cmp.Diff(want, Manifest(existing)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(before, existing); diff != "" {
		t.Errorf("the existing pod has changed:\n%s", diff)
	}
}
