package index

import (
	"github.com/moby/moby/api/types/container"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/docker/dockershim/identity"
)

// Record describes one container of Docker. It never changes.
type Record struct {
	identity.Identity
	ID, Name string
	State    runtimeapi.ContainerState
	// Pid is the ID of its main process; 0 if none runs.
	Pid   int
	Times Times
	// ExitCode, OOMKilled and Message describe the end. Message is also the reason why a container did not start.
	ExitCode  int32
	OOMKilled bool
	Message   string
	// Image is the name that the container was created with, ImageID the image's ID.
	Image, ImageID string
	Files          Files
	// Host has the modes of the namespaces, the handler, and the parent of its cgroup.
	Host *container.HostConfig
	// User and StopSignal are in Docker's form. Empty means the image's.
	User, StopSignal string
	Mounts           []*runtimeapi.Mount
	Resources        *runtimeapi.LinuxContainerResources
}

// Times are in nanoseconds since 1970; 0 means not yet.
type Times struct{ Created, Started, Finished int64 }

// Files are paths of files that Docker keeps for a container; empty while there are none.
type Files struct {
	// Log is the log in Docker's format.
	Log string
	// ResolvConf is the resolv.conf of a sandbox and of its containers.
	ResolvConf string
	// Upper is the directory with the files that the container has written.
	Upper string
}

// Running reports whether its main process runs.
func (r *Record) Running() bool { return r.State == runtimeapi.ContainerState_CONTAINER_RUNNING }

// Exited reports whether its main process has ended, or could not start.
func (r *Record) Exited() bool { return r.State == runtimeapi.ContainerState_CONTAINER_EXITED }

// HostNetwork reports whether a sandbox is in the network of the machine.
func (r *Record) HostNetwork() bool { return r.Host.NetworkMode == "host" }
