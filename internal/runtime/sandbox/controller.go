package sandbox

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/containerd/containerd/api/types"
	core "github.com/containerd/containerd/v2/core/sandbox"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/containerd/typeurl/v2"
	imagespec "github.com/opencontainers/image-spec/specs-go/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/checkpoint"
	"github.com/berth-run/berth/internal/base/headstart"
	"github.com/berth-run/berth/internal/runtime/sandbox/holder"
)

// Config configures a controller.
type Config struct {
	// Holder is the path of the program of holders.
	Holder string
	// Shim is where containerd reaches the shim that serves the containers of all sandboxes.
	Shim Endpoint
	// Root and State are the directories of the runtime.
	Root, State string
	// SystemdCgroup makes systemd create the cgroups of sandboxes.
	SystemdCgroup bool
	// OOMFloor is the lowest OOM score that this process may give to another one.
	OOMFloor int
	// Headstart begins the kernel's wait for the move of a pod's first container, once the holder runs.
	Headstart *headstart.Headstart
	// Log is never nil.
	Log *slog.Logger
}

// Endpoint is where containerd reaches a shim.
type Endpoint struct {
	Address string // in containerd's form, such as ttrpc+unix:///run/x.sock
	Version uint32 // of the task API
}

// Shim is the node's shim.
type Shim interface {
	// Prepare announces a container. It returns at once.
	Prepare()
}

// Controller implements containerd's sandbox controller.
type Controller struct {
	config  Config
	files   files
	starter *holder.Starter
	shim    Shim

	mu      sync.Mutex
	boxes   map[string]*box
	records *checkpoint.Dir[record]
}

// box is a sandbox. Its record does not change once the box is in the controller's map with a holder.
type box struct {
	record

	// config comes from Create. It is nil for a sandbox of an earlier agent.
	config *runtimeapi.PodSandboxConfig

	holder *holder.Process // nil before Start, and if it had ended before this agent started
	ended  chan struct{}   // closed when the sandbox has ended
	exited time.Time       // set before ended is closed
}

var _ core.Controller = (*Controller)(nil)

// box returns a sandbox by its ID.
func (c *Controller) box(id string) (*box, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b := c.boxes[id]; b != nil {
		return b, nil
	}
	return nil, fmt.Errorf("sandbox %s: %w", id, errdefs.ErrNotFound)
}

// Create implements sandbox.Controller: it keeps the configuration for Start.
func (c *Controller) Create(_ context.Context, info core.Sandbox, opts ...core.CreateOpt) error {
	var options core.CreateOptions
	for _, opt := range opts {
		if err := opt(&options); err != nil {
			return err
		}
	}
	value, err := typeurl.UnmarshalAny(options.Options)
	if err != nil {
		return fmt.Errorf("create sandbox %s: %w", info.ID, err)
	}
	config, _ := value.(*runtimeapi.PodSandboxConfig)
	if err := check(config, options.NetNSPath); err != nil {
		return fmt.Errorf("create sandbox %s: %w", info.ID, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.boxes[info.ID] != nil {
		return fmt.Errorf("create sandbox %s: %w", info.ID, errdefs.ErrAlreadyExists)
	}
	c.boxes[info.ID] = &box{config: config, ended: make(chan struct{}), record: record{
		NetworkPath: options.NetNSPath, CgroupParent: config.GetLinux().GetCgroupParent(),
		Systemd: c.config.SystemdCgroup,
	}}
	return nil
}

// Platform implements sandbox.Controller.
func (c *Controller) Platform(context.Context, string) (imagespec.Platform, error) {
	return platforms.DefaultSpec(), nil
}

// Wait implements sandbox.Controller: it returns when the sandbox has ended.
func (c *Controller) Wait(ctx context.Context, id string) (core.ExitStatus, error) {
	b, err := c.box(id)
	if err != nil {
		return core.ExitStatus{}, err
	}
	select {
	case <-b.ended:
		return core.ExitStatus{ExitedAt: b.exited}, nil
	case <-ctx.Done():
		return core.ExitStatus{}, context.Cause(ctx)
	}
}

// Status implements sandbox.Controller.
func (c *Controller) Status(_ context.Context, id string, verbose bool) (core.ControllerStatus, error) {
	b, err := c.box(id)
	if err != nil {
		return core.ControllerStatus{}, err
	}
	status := core.ControllerStatus{
		SandboxID: id, State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY.String(), CreatedAt: b.Created,
	}
	select {
	case <-b.ended:
		status.ExitedAt = b.exited
	default:
		if b.holder != nil {
			status.State, status.Pid = runtimeapi.PodSandboxState_SANDBOX_READY.String(), uint32(b.holder.PID)
		}
		status.Address, status.Version = c.config.Shim.Address, c.config.Shim.Version
	}
	if verbose {
		status.Info, err = b.info()
	}
	return status, err
}

// running reports whether the sandbox has a holder that has not ended.
func (b *box) running() bool {
	select {
	case <-b.ended:
		return false
	default:
		return b.holder != nil
	}
}

// Metrics implements sandbox.Controller.
func (c *Controller) Metrics(_ context.Context, id string) (*types.Metric, error) {
	b, err := c.box(id)
	if err != nil {
		return nil, err
	}
	return metricsOf(id, b.CgroupParent)
}

// Update implements sandbox.Controller. It has nothing to do: the CRI plugin stores new resources of a sandbox itself,
// and the client of the CRI changes the pod's cgroup.
func (c *Controller) Update(context.Context, string, core.Sandbox, ...string) error { return nil }

// Created returns when a sandbox was created. ok is false if the controller does not know the sandbox.
func (c *Controller) Created(id string) (at time.Time, ok bool) {
	b, err := c.box(id)
	if err != nil {
		return time.Time{}, false
	}
	return b.Created, true
}
