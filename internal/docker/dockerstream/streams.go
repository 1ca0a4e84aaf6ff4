package dockerstream

import (
	"context"
	"log/slog"
	"sync"

	"github.com/moby/moby/client"
)

// Docker is the part of Docker's client that streams need.
type Docker interface {
	ExecCreate(ctx context.Context, container string, o client.ExecCreateOptions) (client.ExecCreateResult, error)
	ExecAttach(ctx context.Context, exec string, o client.ExecAttachOptions) (client.ExecAttachResult, error)
	ExecInspect(ctx context.Context, exec string, o client.ExecInspectOptions) (client.ExecInspectResult, error)
	ExecResize(ctx context.Context, exec string, o client.ExecResizeOptions) (client.ExecResizeResult, error)
	ContainerAttach(ctx context.Context, container string,
		o client.ContainerAttachOptions) (client.ContainerAttachResult, error)
	ContainerResize(ctx context.Context, container string,
		o client.ContainerResizeOptions) (client.ContainerResizeResult, error)
}

// Pods knows the network namespaces of pods.
type Pods interface {
	// NetNS returns the path of the network namespace of a pod sandbox, and "" for a pod in the machine's own.
	NetNS(ctx context.Context, sandbox string) (path string, err error)
}

// Streams runs commands and copies their streams.
type Streams struct {
	docker Docker
	pods   Pods
	log    *slog.Logger
	// kills counts the goroutines that kill commands, also after their callers have returned.
	kills sync.WaitGroup
}

// New makes Streams. It does no I/O.
func New(docker Docker, pods Pods, log *slog.Logger) *Streams {
	return &Streams{docker: docker, pods: pods, log: log}
}

// noDetach is a key sequence for detaching that no user types. By default Docker detaches a terminal at Ctrl-P Ctrl-Q,
// and the program would not get these keys.
const noDetach = "ctrl-@,ctrl-^,ctrl-@,ctrl-^,ctrl-@,ctrl-^"
