package podstatus

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/plan"
)

// Reasons that only a status uses, as Kubernetes spells them.
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

// maxPodMessages bounds the termination messages of a pod in bytes, shared evenly by its containers (Kubernetes:
// MaxPodTerminationMessageLogLength).
const maxPodMessages = 12 << 10

// Input is everything that a status depends on.
type Input struct {
	Pod *pod.Pod
	// Generation is the newest generation of the pod's spec that the node has seen. 0 stands for the one in Pod.
	Generation int64
	Observed   *pod.Observed // nil: the runtime has nothing of the pod
	// Previous is the status reported last. Times, lost containers and the final phase come from it. Its zero value
	// stands for the status in Pod.
	Previous corev1.PodStatus
	Plan     *plan.Plan // the latest plan; nil: there was none yet
	Stop     *pod.Stop  // nil: the pod is not stopped
	// Terminated means that nothing of the pod runs or will run.
	Terminated bool
	Refused    *Refusal // nil: admitted
	// Probes are the verdicts by container id. Without an entry, a container has passed the probes that its spec does
	// not have, and not passed the others. A previous status of the same run takes precedence over that.
	Probes map[string]Probes
	// Waiting says why the start of a container has failed so far, with a reason of package reason. nil: no start has
	// failed.
	Waiting func(container string) (reason, message string, ok bool)
	// Starting reports whether a container runs while its postStart handler has not returned. nil: no container does.
	Starting func(container string) bool
	// Messages are termination messages by container id.
	Messages map[string]string
	// Killed says whose memory ran out when the kernel killed a process of a container, by the container's ID.
	Killed map[string]string
	// Actual has the values that the runtime has applied, by container id. A container without an entry shows the
	// resources of its spec and no stop signal.
	Actual map[string]Actual
	// Whole are the pod-level resources of the pod's cgroup. nil: the spec has them.
	Whole *corev1.ResourceRequirements
	// Devices returns the health of the devices that a container holds (KEP-4680). nil: no container holds devices.
	Devices func(container string) []corev1.ResourceStatus
	// Extra are conditions that other packages compute, such as the conditions of a resize.
	Extra []corev1.PodCondition
	// QOS is the pod's QoS class. If it is empty, the status shows the class in the pod's own status.
	QOS  corev1.PodQOSClass
	Node Node
	Now  time.Time
}

// Node holds the facts that the statuses of all pods of a node share.
type Node struct {
	// Runtime is the runtime's name in container ids, such as containerd.
	Runtime string
	// HostIPs are the node's addresses, primary first, at most one of a family.
	HostIPs []string
	// RecursiveReadOnly means that the runtime can mount read-only recursively (KEP-3857).
	RecursiveReadOnly bool
	Hidden            Hidden
}

// Hidden are parts of a status that are left out.
type Hidden struct {
	StartCondition bool // the condition PodReadyToStartContainers
	// ResourceHealth is allocatedResourcesStatus, ResourceHealthMessage the messages in it.
	ResourceHealth, ResourceHealthMessage bool
}

// Refusal is the answer of admission for a pod that it did not admit.
type Refusal struct {
	Reason, Message string
	// Final means that the pod is rejected and Failed. Otherwise it waits and is Pending.
	Final bool
	// Blocked means that a waiting pod needs something which the node lacks. It does not wait for another pod or
	// object.
	Blocked bool
}

// Probes are the verdicts for one container id.
type Probes struct {
	// Started means that the startup probe has succeeded, or that there is none.
	Started bool
	// Ready means that the readiness probe succeeds, or that there is none.
	Ready bool
}

// Actual are the resources and the stop signal that the runtime reports for one container.
type Actual struct {
	Resources  *corev1.ResourceRequirements
	StopSignal *corev1.Signal
}
