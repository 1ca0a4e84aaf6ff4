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

// Mirror says whether a pod of the API stands there for a static one.
func Mirror(p *corev1.Pod) bool {
	_, ok := p.Annotations[pod.AnnotationMirror]
	return ok
}

// NameOf is the pod's name within its namespace.
func NameOf(p *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
}

// unfit says why a pod cannot be run here. The API server has validated it; what
// becomes part of paths on this node is looked at again.
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

// own is the pod without a mark that would make it one of this node's manifests,
// which have rights that a pod of the API has not.
func own(p *corev1.Pod) *corev1.Pod {
	if from, marked := p.Annotations[pod.AnnotationConfigSource]; !marked || from == string(pod.SourceAPI) {
		return p
	}
	c := *p
	c.Annotations = maps.Clone(p.Annotations)
	delete(c.Annotations, pod.AnnotationConfigSource)
	return &c
}

// sameVersion says whether two objects of one UID are the same.
func sameVersion(a, b *corev1.Pod) bool {
	if a.UID != b.UID {
		return false
	}
	return a.ResourceVersion != "" && a.ResourceVersion == b.ResourceVersion || equality.Semantic.DeepEqual(a, b)
}
