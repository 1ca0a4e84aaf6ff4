package pod

// Labels and annotations on CRI sandboxes and containers. They are the kubelet's, so that a kubelet and Berth can each
// take over the other's containers.
const (
	LabelPodName       = "io.kubernetes.pod.name"
	LabelPodNamespace  = "io.kubernetes.pod.namespace"
	LabelPodUID        = "io.kubernetes.pod.uid"
	LabelContainerName = "io.kubernetes.container.name"

	AnnotationHash                     = "io.kubernetes.container.hash"
	AnnotationRestartCount             = "io.kubernetes.container.restartCount"
	AnnotationTerminationMessagePath   = "io.kubernetes.container.terminationMessagePath"
	AnnotationTerminationMessagePolicy = "io.kubernetes.container.terminationMessagePolicy"
	AnnotationPreStopHandler           = "io.kubernetes.container.preStopHandler"
	AnnotationPorts                    = "io.kubernetes.container.ports"
	AnnotationDeletionGrace            = "io.kubernetes.pod.deletionGracePeriod"
	AnnotationTerminationGrace         = "io.kubernetes.pod.terminationGracePeriod"

	// AnnotationBackoff is Berth's own: the crash delay before this start, as a Go duration. The next delay is computed
	// from it, even by an agent that started later.
	AnnotationBackoff = "berth.run/backoff"
)
