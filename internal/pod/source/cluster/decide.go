package cluster

import (
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/model/pod"
)

// Mirror reports whether a pod of the API is the mirror of a static pod.
func Mirror(p *corev1.Pod) bool {
	_, ok := p.Annotations[pod.AnnotationMirror]
	return ok
}

// NameOf returns the pod's namespace and name.
func NameOf(p *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
}

// unfit returns why a pod cannot run here. The API server has validated the pod, but the values that become parts of
// paths on this node are checked again.
func unfit(p *corev1.Pod, node string) error {
	for field, value := range map[string]string{"uid": string(p.UID), "name": p.Name, "namespace": p.Namespace} {
		if value == "" || value == "." || value == ".." || strings.ContainsAny(value, "/\x00") {
			return fmt.Errorf("pod %s: metadata.%s: Invalid value: %q", pod.FullName(p), field, value)
		}
	}
	if p.Spec.NodeName != node {
		return fmt.Errorf("pod %s: spec.nodeName: Invalid value: %q: this node is %q", pod.FullName(p), p.Spec.NodeName,
			node)
	}
	return nil
}

// own returns the pod without an annotation that would make it look like one of this node's static pods, which have
// more rights.
func own(p *corev1.Pod) *corev1.Pod {
	if from, marked := p.Annotations[pod.AnnotationConfigSource]; !marked || from == string(pod.SourceAPI) {
		return p
	}
	c := *p
	c.Annotations = maps.Clone(p.Annotations)
	delete(c.Annotations, pod.AnnotationConfigSource)
	return &c
}

// sameVersion reports whether two pods have the same UID and content.
func sameVersion(a, b *corev1.Pod) bool {
	if a.UID != b.UID {
		return false
	}
	return a.ResourceVersion != "" && a.ResourceVersion == b.ResourceVersion || equality.Semantic.DeepEqual(a, b)
}
