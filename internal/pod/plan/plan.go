package plan

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/model/pod"
)

// Input is everything that a plan depends on.
type Input struct {
	Pod      *corev1.Pod
	Observed *pod.Observed // nil: the runtime does not know the pod
	Probes   map[string]Probes
	// Last is the status last reported, even by an earlier agent; zero if there was none. It shows what the runtime has
	// lost: an ended pod or container stays ended.
	Last corev1.PodStatus
	// Hash is the wanted container hash by container name. A container with another hash is replaced.
	Hash map[string]string
	// Restart holds the ids of containers that must be replaced, whatever their restart policy says: to get other
	// resources (resizePolicy RestartContainer), or because they were stopped after a change of their spec.
	Restart map[string]bool
	// Started is when the pod was first seen on this node. activeDeadlineSeconds counts from then.
	Started time.Time
	// MaxBackoff is the longest crash delay. Its range is 1 s to 300 s, and 0 means 300 s (KEP-4603,
	// crashLoopBackOff.maxContainerRestartPeriod).
	MaxBackoff time.Duration
	Now        time.Time
}

// Probes holds the verdicts for one container id.
type Probes struct {
	Startup  Verdict
	Liveness Verdict
	// Grace is the probe-level terminationGracePeriodSeconds of the probe that failed.
	Grace *int64
	// Message is the message of the failed probe.
	Message string
}

// Verdict is the result of a probe. The zero value means that there is none yet.
type Verdict int

// The verdicts of a probe.
const (
	Unknown Verdict = iota
	Success
	Failure
)

// SandboxOp is the operation on the pod sandbox.
type SandboxOp int

// The operations on a sandbox.
const (
	// SandboxNone means that nothing may run in this pod any more.
	SandboxNone SandboxOp = iota
	SandboxKeep
	// SandboxDrain means that a new sandbox is needed, but containers of the old one still run and must be killed
	// first.
	SandboxDrain
	// SandboxCreate means that the sandboxes in Stop must be stopped and a new one created. Nothing runs.
	SandboxCreate
)

func (o SandboxOp) String() string { return [...]string{"none", "keep", "drain", "create"}[o] }

// Sandbox is the decision about the pod sandbox.
type Sandbox struct {
	Op SandboxOp
	// ID is the sandbox to keep.
	ID string
	// Attempt is the attempt of the sandbox to create; 0 for the first.
	Attempt uint32
	// Stop lists the sandboxes to stop before the new one is created.
	Stop []string
	// Why says why a new sandbox is needed; empty for the first.
	Why string
}

// Kill is a container to stop.
type Kill struct {
	ID, Name string
	// Why is the message of the Killing event.
	Why    string
	Reason KillReason
	// Grace, if not nil, overrides the pod's grace, in seconds.
	Grace *int64
	// Replace means that the container must start again whatever its restart policy says. That must be written down
	// before the stop, because the exited container does not show it.
	Replace bool
}

// KillReason is the kind of a kill. The container's status and backoff depend on it.
type KillReason int

// The kinds of kills.
const (
	KillSpecChanged KillReason = iota
	KillLiveness
	KillStartup
	KillSandboxGone
	KillRestartAll
	KillPodDone
	KillResized
)

// Start is a container to start now.
type Start struct {
	pod.Container
	// RestartCount is the restart count of the new instance.
	RestartCount int
	// Backoff is the crash delay before this start. It is written on the container, because the next delay is computed
	// from it.
	Backoff time.Duration
	// Anew says that the container starts together with all others of the pod, in their order, because its exit caused
	// a restart of all.
	Anew bool
}

// Waiting is a container that is not started yet, with the reason for its status.
type Waiting struct {
	Name    string
	Reason  string // CrashLoopBackOff, PodInitializing
	Message string
	Until   time.Time // zero: it does not wait for a time
}

// Plan is the decision. The steps carry out each list in its order.
type Plan struct {
	Sandbox Sandbox
	Kill    []Kill
	Start   []Start
	Waiting []Waiting
	// Remove lists dead containers to remove before anything starts: those that were created and never started. If a
	// rule restarts all containers, it lists all except the one that triggered the rule.
	Remove []string
	// Done says that the pod has ended by itself and nothing of it may run.
	Done bool
	// Failed says that a pod that is Done is Failed, not Succeeded.
	Failed bool
	// DeadlineExceeded says that activeDeadlineSeconds has passed.
	DeadlineExceeded bool
	// RestartingAll says that a rule restarts all containers.
	RestartingAll bool
	// LookAgain is when the plan changes if nothing else does; zero for never.
	LookAgain time.Time
}
