package engine

import (
	"context"
	"io"

	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/runtime"
)

// Runtime is one kind of container runtime. Everything in which the kinds differ is
// one of its methods.
type Runtime interface {
	// Connect returns the client of the runtime. A runtime that is part of this
	// process is started with launch first.
	Connect(ctx context.Context, launch Launch, o cri.Options) (*cri.Client, error)
	// Import puts the images of an archive into the runtime, and Export writes images
	// as an archive.
	Import(ctx context.Context, archive io.Reader) ([]runtime.Image, error)
	Export(ctx context.Context, archive io.Writer, names ...string) error
	// Progress reports how far pulls are; nil if the runtime cannot say.
	Progress() Progress
	// RemoveNetwork removes what the runtime's network of pods leaves on the machine.
	RemoveNetwork() error
	// Traits are the constant properties of this kind.
	Traits() Traits
}

// Launch runs a part of the agent that has to end after all the others.
type Launch func(run func(context.Context) error)

// Progress reports how far the pull of an image is, in bytes.
type Progress interface {
	PullProgress(image string) (fetched, total, unpacked int64)
}

// Traits are the constant properties of a kind of runtime.
type Traits struct {
	// Shared means that the runtime may have pods that are not this agent's.
	Shared bool
	// NoSELinux says why pods cannot have SELinux labels; "" if they can.
	NoSELinux string
	// StateDir is the directory that containers with a user namespace of their own
	// must be able to pass; "/" for a runtime that looks after its own directories.
	StateDir string
	// LogsOOMFloor means that the runtime itself logs that it cannot lower the
	// oom_score_adj of containers below its own.
	LogsOOMFloor bool
}
