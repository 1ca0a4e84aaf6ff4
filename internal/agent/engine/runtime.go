package engine

import (
	"context"
	"io"
	"log/slog"

	"go.opentelemetry.io/otel/trace"

	"github.com/berth-run/berth/internal/agent/engine/endpoint"
	"github.com/berth-run/berth/internal/base/diskusage"
	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/config/embedded"
	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/runtime/network"
)

// Runtime is one kind of container runtime. What a kind does differently is a method. What it is, is in Traits.
type Runtime interface {
	// Connect returns the client of the runtime. For the embedded runtime it first uses launch to start the runtime.
	Connect(ctx context.Context, launch Launch, o cri.Options) (*cri.Client, error)
	// Import puts the images of an archive into the runtime, and returns their names. Export writes images as an
	// archive.
	Import(ctx context.Context, archive io.Reader) ([]string, error)
	Export(ctx context.Context, archive io.Writer, names ...string) error
	// Progress reports how far pulls are; nil if the runtime cannot say.
	Progress() Progress
	// Layers measures writable layers; nil if only the CRI can say how large they are.
	Layers() Layers
	// Overlaps has a row for each range of pods that overlaps with another network of the machine. It is nil if the
	// runtime cannot say.
	Overlaps() *network.Overlaps
	// RemoveNetwork removes the interfaces and rules of the runtime's pod network from the machine.
	RemoveNetwork(ctx context.Context) error
}

// Kinds makes runtimes. Package kind implements it with all kinds.
type Kinds interface {
	// Runtime returns the runtime that an endpoint stands for.
	Runtime(endpoint.Choice, *config.Config, trace.TracerProvider, *slog.Logger) Runtime
	// Traits returns the constant properties of that runtime, without making it.
	Traits(endpoint.Choice, *config.Config) Traits
}

// Launch starts a part of the agent that must end after all other parts.
type Launch func(run func(context.Context) error)

// Progress reports how many bytes of an image are pulled.
type Progress interface {
	PullProgress(image string) (fetched, total, unpacked int64)
}

// Layers measures and frees writable layers.
type Layers interface {
	// LayerUsage measures the writable layer of a container now.
	LayerUsage(ctx context.Context, container string) (diskusage.Usage, error)
	// FreeLayers waits until the layers of removed containers use no space, or until ctx ends.
	FreeLayers(ctx context.Context) error
}

// Traits are the constant properties of a kind of runtime.
type Traits struct {
	// Shared means that the runtime may have pods that are not this agent's.
	Shared bool
	// NoSELinux says why pods cannot have SELinux labels; "" if they can.
	NoSELinux string
	// StateDir is the directory that containers with their own user namespace must be able to pass through. It is "/"
	// for a runtime that sets the permissions of its directories itself.
	StateDir string
	// InProcess means that the runtime is a part of this process. Containers get no capability that the process lacks,
	// and the kernel compares their /proc with this process's.
	InProcess bool
	// BuiltInNetwork means that pods get the agent's own network while the machine has no CNI configuration.
	BuiltInNetwork bool
	// HandlerPrograms say what runs the pods of each handler, if the agent's configuration decides that.
	HandlerPrograms []embedded.Description
	// LogsOOMFloor means that the runtime itself logs that it cannot lower the oom_score_adj of containers below its
	// own.
	LogsOOMFloor bool
}
