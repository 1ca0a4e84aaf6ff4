package index

import (
	"context"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/moby/moby/client"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-run/berth/internal/base/lock"
	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/docker"
)

// Observer sees each change before the readers of the table do.
type Observer interface {
	// Changed is called before the table shows a change. before is nil for a new container, after for a removed one.
	Changed(ctx context.Context, before, after *Record)
	// Listed is called after each list of all containers, before the table has readers. first is set for the first one.
	Listed(ctx context.Context, first bool)
}

// Index is the table of all containers. Run keeps it up to date.
type Index struct {
	engine   *docker.Client
	observer Observer
	log      *slog.Logger

	table  *store.Table[string, *Record]
	writes lock.Keyed // one writer for each container
	events broadcast
	// synced is set while the table follows the Engine's events.
	synced atomic.Bool
	// ready is closed when the table is complete for the first time.
	ready chan struct{}
	held  holds
	// pending has the IDs of containers to read, because an event named them or a hold ended.
	pending *wake.Set[string]
}

// New allocates an index.
func New(engine *docker.Client, observer Observer, log *slog.Logger) *Index {
	return &Index{engine: engine, observer: observer, log: log, table: store.New[string, *Record](),
		pending: wake.NewSet[string](), ready: make(chan struct{})}
}

// Synced returns an error with the code Unavailable while the table does not follow the Engine's events.
func (x *Index) Synced() error {
	if x.synced.Load() {
		return nil
	}
	return status.Errorf(codes.Unavailable, "Docker at %s does not answer; next: check that dockerd runs",
		x.engine.Socket())
}

// AwaitSync waits until the table is complete for the first time.
func (x *Index) AwaitSync(ctx context.Context) error {
	select {
	case <-x.ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Sandbox returns the sandbox with an ID.
func (x *Index) Sandbox(id string) (*Record, error) { return x.find(id, true) }

// Container returns the container with an ID.
func (x *Index) Container(id string) (*Record, error) { return x.find(id, false) }

func (x *Index) find(id string, sandbox bool) (*Record, error) {
	if err := x.Synced(); err != nil {
		return nil, err
	}
	if r, ok := x.table.Get(id); ok && r.Sandbox == sandbox {
		return r, nil
	}
	what := "container"
	if sandbox {
		what = "sandbox"
	}
	return nil, status.Errorf(codes.NotFound, "Docker has no %s %q of Kubernetes", what, id)
}

// All yields all sandboxes, or all containers.
func (x *Index) All(sandboxes bool) iter.Seq[*Record] {
	return func(yield func(*Record) bool) {
		for _, r := range x.table.Snapshot().All() {
			if r.Sandbox == sandboxes && !yield(r) {
				return
			}
		}
	}
}

// Of yields the containers of a sandbox.
func (x *Index) Of(sandbox string) iter.Seq[*Record] {
	return func(yield func(*Record) bool) {
		for r := range x.All(false) {
			if r.SandboxID == sandbox && !yield(r) {
				return
			}
		}
	}
}

// Look reads a container from the Engine. It returns nil for a container that is gone or does not belong to Kubernetes.
func (x *Index) Look(ctx context.Context, id string) (*Record, error) {
	found, err := x.engine.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
	if docker.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, docker.Error(err)
	}
	r, err := read(&found.Container)
	if err != nil {
		x.log.Debug("container ignored, it does not belong to Kubernetes", "container", id, "reason", err)
		return nil, nil
	}
	return r, nil
}

// Refresh reads a container from the Engine and updates the table. It returns nil for a container that is gone or does
// not belong to Kubernetes.
func (x *Index) Refresh(ctx context.Context, id string) (*Record, error) {
	unlock, err := x.writes.Lock(ctx, id)
	if err != nil {
		return nil, docker.Error(err)
	}
	defer unlock()
	before, _ := x.table.Get(id)
	after, err := x.Look(ctx, id)
	if err != nil || after != nil && x.held.hides(after.Name, id) {
		return after, err
	}
	x.change(ctx, id, before, after)
	return after, nil
}

// Hold hides the container with a name until release is called. Then the index reads the container.
func (x *Index) Hold(name string) (release func()) {
	x.held.add(name)
	return func() {
		for id := range x.held.remove(name) {
			x.pending.Add(id)
		}
	}
}

// holds are the names of containers that are hidden while they are made, with the IDs that were hidden.
type holds struct {
	mu    sync.Mutex
	names map[string]map[string]bool
}

func (h *holds) add(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.names == nil {
		h.names = map[string]map[string]bool{}
	}
	h.names[name] = map[string]bool{}
}

func (h *holds) remove(name string) (ids map[string]bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	ids = h.names[name]
	delete(h.names, name)
	return ids
}

// hides reports whether a name is held, and notes the ID.
func (h *holds) hides(name, id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	ids, held := h.names[name]
	if held {
		ids[id] = true
	}
	return held
}

// change writes a record. Its caller holds the lock of the container.
func (x *Index) change(ctx context.Context, id string, before, after *Record) {
	if before == nil && after == nil {
		return
	}
	x.observer.Changed(ctx, before, after)
	if after == nil {
		x.table.Delete(id)
	} else {
		x.table.Put(id, after)
	}
	for _, event := range stages(before, after) {
		x.events.publish(event, before, after)
	}
}
