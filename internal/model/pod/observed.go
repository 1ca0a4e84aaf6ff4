package pod

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ContainerState is the CRI's view of a container.
type ContainerState int

// The states of a container in the CRI.
const (
	StateUnknown ContainerState = iota
	StateCreated
	StateRunning
	StateExited
)

func (s ContainerState) String() string {
	return [...]string{"unknown", "created", "running", "exited"}[s]
}

// Observed is what the runtime showed of one pod at one moment. pleg is its
// only writer. A pod unknown to the runtime has empty lists.
type Observed struct {
	UID       types.UID
	Name      string
	Namespace string
	// Sandboxes are newest first.
	Sandboxes []SandboxStatus
	// Containers are newest first; several may carry the same name (earlier attempts).
	Containers []ContainerStatus
	// At is when the reading began: what happened later may be missing.
	At time.Time
}

// SandboxStatus is one pod sandbox.
type SandboxStatus struct {
	ID        string
	Attempt   uint32
	Ready     bool
	CreatedAt time.Time
	// HostNetwork is the network namespace mode NODE.
	HostNetwork bool
	// IPs has the primary address first; empty on the host network.
	IPs []string
}

// ContainerStatus is one container of the pod, running or not.
type ContainerStatus struct {
	ID         string
	SandboxID  string
	Name       string
	State      ContainerState
	CreatedAt  time.Time
	StartedAt  time.Time // zero until started
	FinishedAt time.Time // zero until exited
	ExitCode   int32
	Reason     string // e.g. OOMKilled, Completed, Error, StartError
	Message    string
	Image      string // as the runtime names it
	ImageID    string // resolved: digest or id
	// Hash, RestartCount and the rest are read back from the annotations that
	// the container was created with (io.kubernetes.container.*).
	Hash                   string
	RestartCount           int
	TerminationMessagePath string
	TerminationFromLogs    bool // terminationMessagePolicy FallbackToLogsOnError
	// Backoff is the crash delay that preceded this start; zero for a first start.
	Backoff time.Duration
	LogPath string
	// TerminationGrace and PreStop are what the pod's spec said, for when
	// nobody knows the spec any more: seconds, nil if not written; and the
	// handler as JSON.
	TerminationGrace *int64
	PreStop          string
	// User is who its first process was started as, if the runtime tells (KEP-3619).
	User *corev1.ContainerUser
}

// Sandbox returns the newest ready sandbox.
func (o *Observed) Sandbox() (SandboxStatus, bool) {
	if o != nil {
		for _, s := range o.Sandboxes {
			if s.Ready {
				return s, true
			}
		}
	}
	return SandboxStatus{}, false
}

// Container returns the newest container of that name.
func (o *Observed) Container(name string) (ContainerStatus, bool) {
	if o != nil {
		for _, c := range o.Containers {
			if c.Name == name {
				return c, true
			}
		}
	}
	return ContainerStatus{}, false
}

// Running says whether any container or sandbox of the pod still runs.
func (o *Observed) Running() bool {
	if o == nil {
		return false
	}
	for _, s := range o.Sandboxes {
		if s.Ready {
			return true
		}
	}
	for _, c := range o.Containers {
		if c.State == StateRunning || c.State == StateUnknown {
			return true
		}
	}
	return false
}

// ContainersOf lists the containers, none for a nil Observed.
func (o *Observed) ContainersOf() []ContainerStatus {
	if o == nil {
		return nil
	}
	return o.Containers
}
