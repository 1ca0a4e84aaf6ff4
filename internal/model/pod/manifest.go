package pod

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Manifest returns a manifest for a new pod like an existing one: with its name, labels, annotations and spec, and
// without what an agent or a cluster has written.
func Manifest(p *corev1.Pod) *corev1.Pod {
	m := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace, Labels: maps.Clone(p.Labels),
			Annotations: maps.Clone(p.Annotations)},
		Spec: *p.Spec.DeepCopy(),
	}
	maps.DeleteFunc(m.Annotations, func(key, _ string) bool { return strings.HasPrefix(key, "kubernetes.io/config.") })
	m.Spec.NodeName, m.Spec.EphemeralContainers = "", nil
	return m
}
