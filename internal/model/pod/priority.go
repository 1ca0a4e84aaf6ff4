package pod

import corev1 "k8s.io/api/core/v1"

// Priorities and priority classes of Kubernetes' own.
const (
	// SystemCritical is the least priority of a pod that others make room for.
	SystemCritical = 2_000_000_000

	systemNodeCritical    = "system-node-critical"
	systemClusterCritical = "system-cluster-critical"
)

// Priority is that of the spec; without one, that of a class that every cluster
// has; else 0.
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

// Static says that a manifest in a directory or at a URL stands for the pod, and
// no API server.
func Static(p *corev1.Pod) bool {
	from := Source(p.Annotations[AnnotationConfigSource])
	return from == SourceFile || from == SourceURL
}
