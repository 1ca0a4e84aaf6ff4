package plan

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/model/pod"
)

// Input is everything a plan depends on.
type Input struct {
	Pod      *corev1.Pod
	Observed *pod.Observed // nil: nothing known of the pod in the runtime
	Probes   map[string]Probes
	// Last is the status last reported, also by an earlier agent. It tells what
	// the runtime has lost: a pod that has ended stays ended, and so does a
	// container. Its zero value: none was.
	Last corev1.PodStatus
	// Hash is the wanted value of the container hash by container name. A
	// container that carries another one is replaced.
	Hash map[string]string
	// Restart are the ids of containers that are to restart to get other
	// resources (resizePolicy RestartContainer).
	Restart map[string]bool
	// Started is when the pod was first seen on this node, the begin of
	// activeDeadlineSeconds.
	Started time.Time
	// MaxBackoff bounds the crash delay. Range 1 s to 300 s, 0 means 300 s
	// (KEP-4603, crashLoopBackOff.maxContainerRestartPeriod).
	MaxBackoff time.Duration
	Now        time.Time
}

// Probes are the verdicts for one container id.
type Probes struct {
	Startup  Verdict
	Liveness Verdict
	// Grace is the probe-level terminationGracePeriodSeconds of the probe that failed.
	Grace *int64
	// Message of the failed probe.
	Message string
}

// Verdict of a probe. The zero value means that there is none yet.
type Verdict int

// What a probe may have said.
const (
	Unknown Verdict = iota
	Success
	Failure
)

// SandboxOp is what to do about the pod sandbox.
type SandboxOp int

// The answers for a sandbox.
const (
	// SandboxNone: nothing is to run in this pod any more.
	SandboxNone SandboxOp = iota
	SandboxKeep
	// SandboxDrain: a new one is needed, and containers of the old one still
	// run; they are killed first.
	SandboxDrain
	// SandboxCreate: stop what Stop lists and make a new one. Nothing runs.
	SandboxCreate
)

func (o SandboxOp) String() string { return [...]string{"none", "keep", "drain", "create"}[o] }

// Sandbox is the decision about the pod sandbox.
type Sandbox struct {
	Op SandboxOp
	// ID of the sandbox to keep.
	ID string
	// Attempt of the sandbox to create; 0 for the first.
	Attempt uint32
	// Stop lists the sandboxes to stop before a new one is made.
	Stop []string
	// Why a new one is needed; empty for the first.
	Why string
}

// Kill is a container to stop.
type Kill struct {
	ID, Name string
	// Why, as a sentence for the Killing event.
	Why    string
	Reason KillReason
	// Grace overrides the pod's grace when not nil, in seconds.
	Grace *int64
}

// KillReason says what kind of kill it is, for the container's status and backoff.
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
	// RestartCount of the new instance.
	RestartCount int
	// Backoff is the crash delay that preceded this start; written on the
	// container so that the next one is computed from it.
	Backoff time.Duration
	// Anew says that the container begins with all others of the pod, in their
	// order, though it has run in this sandbox: it asked for a restart of all.
	Anew bool
}

// Waiting is a container that is not started yet, with the reason shown to users.
type Waiting struct {
	Name    string
	Reason  string // CrashLoopBackOff, PodInitializing
	Message string
	Until   time.Time // zero: not a matter of time
}

// Plan is the decision. Lists are in the order in which they are to be acted on.
type Plan struct {
	Sandbox Sandbox
	Kill    []Kill
	Start   []Start
	Waiting []Waiting
	// Remove lists dead containers that are to go before anything starts: ones
	// that were created and never started, and all but the one that triggered it
	// when a restart rule said so.
	Remove []string
	// Done says that the pod ended by itself: Succeeded or Failed, nothing of it is to run.
	Done bool
	// Failed tells the two apart.
	Failed bool
	// DeadlineExceeded says that activeDeadlineSeconds is over.
	DeadlineExceeded bool
	// RestartingAll says that a restart rule asked for all containers to begin anew.
	RestartingAll bool
	// LookAgain is the next moment at which the plan changes by itself; zero for never.
	LookAgain time.Time
}
