package pod

// Labels and annotations on CRI sandboxes and containers. They are the
// kubelet's, so that its containers and Berth's are each other's.
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

	// AnnotationBackoff is Berth's own: the crash delay that preceded this
	// start, as a Go duration. The next delay is computed from it, also by an
	// agent that was started since.
	AnnotationBackoff = "berth.run/backoff"
)
