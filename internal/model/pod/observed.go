package pod

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ContainerState is the state of a container in the CRI.
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

// Observed is the runtime's state of one pod at one moment. Package pleg is its only writer. A pod that is unknown to
// the runtime has empty lists.
type Observed struct {
	UID       types.UID
	Name      string
	Namespace string
	// Sandboxes lists the newest first.
	Sandboxes []SandboxStatus
	// Containers lists the newest first. Earlier instances have the same name.
	Containers []ContainerStatus
	// At is when the reading began. Later changes may be missing.
	At time.Time
}

// SandboxStatus is one pod sandbox.
type SandboxStatus struct {
	ID        string
	Attempt   uint32
	Ready     bool
	CreatedAt time.Time
	// HostNetwork says that the sandbox uses the host's network namespace.
	HostNetwork bool
	// IPs lists the primary address first. It is empty on the host network.
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
	ImageID    string // digest or id
	// Hash, RestartCount and the fields below come from annotations of the container (io.kubernetes.container.*).
	Hash                   string
	RestartCount           int
	TerminationMessagePath string
	TerminationFromLogs    bool // terminationMessagePolicy FallbackToLogsOnError
	// Backoff is the crash delay before this start; zero for a first start.
	Backoff time.Duration
	LogPath string
	// TerminationGrace and PreStop are copied from the pod's spec, for when the spec is lost. TerminationGrace is in
	// seconds, nil if unknown. PreStop is the handler as JSON.
	TerminationGrace *int64
	PreStop          string
	// User is the user of its first process, if the runtime reports it (KEP-3619).
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

// Newest returns the newest instance of each container by name, for readers of many: Container searches.
func (o *Observed) Newest() map[string]*ContainerStatus {
	newest := map[string]*ContainerStatus{}
	for i := range slices.Backward(o.ContainersOf()) {
		newest[o.Containers[i].Name] = &o.Containers[i]
	}
	return newest
}

// Running reports whether any container or sandbox of the pod still runs.
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

// ContainersOf returns the containers, none for a nil Observed.
func (o *Observed) ContainersOf() []ContainerStatus {
	if o == nil {
		return nil
	}
	return o.Containers
}
