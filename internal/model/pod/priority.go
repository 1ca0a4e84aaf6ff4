package pod

import corev1 "k8s.io/api/core/v1"

// Priorities and priority classes that Kubernetes defines.
const (
	// SystemCritical is the lowest priority of a critical pod, for which other pods are preempted.
	SystemCritical = 2_000_000_000

	systemNodeCritical    = "system-node-critical"
	systemClusterCritical = "system-cluster-critical"
)

// Priority returns the priority of the spec. Without one it returns that of a built-in priority class, or else 0.
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

// Static reports whether the pod comes from a manifest in a directory or at a URL and not from an API server.
func Static(p *corev1.Pod) bool {
	from := Source(p.Annotations[AnnotationConfigSource])
	return from == SourceFile || from == SourceURL
}
