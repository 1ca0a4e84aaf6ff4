package podstatus

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/plan"
)

// Reasons in a status that are the status's own, as Kubernetes spells them.
const (
	containerStatusUnknown  = "ContainerStatusUnknown"
	restartingAllContainers = "RestartingAllContainers"
	podCompleted            = "PodCompleted"
	podFailed               = "PodFailed"

	lostMessage      = "The container could not be located when the pod was terminated"
	usedToRunMessage = "The container could not be located when the pod was deleted.  The container used to be Running"
	removedMessage   = "The container is removed because RestartAllContainers in place"
	inferredMessage  = "Unable to get init container status from container runtime and pod has been initialized, " +
		"treat it as exited normally"
)

// lostExitCode is the exit code of a container whose end no agent has observed.
const lostExitCode = 137

// maxPodMessages bounds the termination messages of a pod in bytes, shared
// evenly by its containers (Kubernetes: MaxPodTerminationMessageLogLength).
const maxPodMessages = 12 << 10

// Input is everything a status depends on.
type Input struct {
	Pod      *pod.Pod
	Observed *pod.Observed // nil: nothing known of the pod in the runtime
	// Previous is the status last reported; its zero value stands for the one
	// the pod came with. Times, lost containers and the final phase come from it.
	Previous corev1.PodStatus
	Plan     *plan.Plan // the last one made; nil: none yet
	Stop     *pod.Stop  // nil: the pod is to go on
	// Terminated says that nothing of the pod runs or will run.
	Terminated bool
	Refused    *Refusal // nil: admitted
	// Probes are the verdicts by container id. A container without an entry
	// counts as unprobed where its spec has no probe, else as not there yet.
	Probes map[string]Probes
	// Waiting tells why a container's start has failed so far, with a reason of
	// package reason. nil: nothing failed.
	Waiting func(container string) (reason, message string, ok bool)
	// Starting says that a container runs but its start is not complete: its
	// postStart handler has not returned. nil: never.
	Starting func(container string) bool
	// Messages are termination messages by container id.
	Messages map[string]string
	// Actual is what the runtime applied, by container id. Without an entry a
	// container's resources are those of its spec and its user is not shown.
	Actual map[string]Actual
	// Devices is the health of those that a container holds (KEP-4680). nil: none hold any.
	Devices func(container string) []corev1.ResourceStatus
	// Extra are conditions of other writers, such as those of a resize.
	Extra []corev1.PodCondition
	// QOS is the pod's class; empty: the one in the pod's own status.
	QOS  corev1.PodQOSClass
	Node Node
	Now  time.Time
}

// Node holds the facts that the statuses of all pods of a node share.
type Node struct {
	// Runtime is the name in container ids, e.g. containerd.
	Runtime string
	// HostIPs are the node's addresses, primary first, at most one of a family.
	HostIPs []string
	// RecursiveReadOnly says that the runtime can mount read-only recursively (KEP-3857).
	RecursiveReadOnly bool
}

// Refusal is the answer of admission to a pod that it did not let in.
type Refusal struct {
	Reason, Message string
	// Final: the pod is rejected and Failed. Otherwise it waits, Pending.
	Final bool
}

// Probes are the verdicts for one container id.
type Probes struct {
	// Started: there is no startup probe or it has succeeded.
	Started bool
	// Ready: there is no readiness probe or it succeeds.
	Ready bool
}

// Actual are the resources and the stop signal that the runtime reports for one container.
type Actual struct {
	Resources  *corev1.ResourceRequirements
	StopSignal *corev1.Signal
}
