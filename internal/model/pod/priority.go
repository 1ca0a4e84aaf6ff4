package pod

import (
	"encoding/hex"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Priorities and priority classes that Kubernetes defines.
const (
	// SystemCritical is the lowest priority of a critical pod. Other pods are preempted for critical pods.
	SystemCritical = 2_000_000_000

	systemNodeCritical    = "system-node-critical"
	systemClusterCritical = "system-cluster-critical"
)

// Priority returns the priority of the spec. If the spec has none, it returns the priority of the pod's built-in
// priority class, or 0 if the pod has no such class.
func Priority(p *corev1.Pod) int32 {
	switch {
	case p.Spec.Priority != nil:
		return *p.Spec.Priority
	case p.Spec.PriorityClassName == systemNodeCritical:
		return SystemCritical + 1000
	case p.Spec.PriorityClassName == systemClusterCritical:
		return SystemCritical
	}
	return 0
}

// Critical reports whether a pod is critical: by its priority, or if static is set because it is a static pod.
func Critical(p *corev1.Pod, static bool) bool {
	return Priority(p) >= SystemCritical || static && Static(p)
}

// Static reports whether the pod comes from a manifest in a directory or at a URL and not from an API server.
func Static(p *corev1.Pod) bool {
	from := Source(p.Annotations[AnnotationConfigSource])
	return from == SourceFile || from == SourceURL
}

// StaticUID reports whether a UID is a static pod's, which has 128 bits in hex. UIDs of the API server have dashes.
func StaticUID(uid types.UID) bool {
	b, err := hex.DecodeString(string(uid))
	return err == nil && len(b) == 16
}
