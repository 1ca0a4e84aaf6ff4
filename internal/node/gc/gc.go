package gc

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/record/event"
)

// runtime removes containers and sandboxes that do not run.
type runtime interface {
	RemoveContainer(context.Context, *runtimeapi.RemoveContainerRequest,
		...grpc.CallOption) (*runtimeapi.RemoveContainerResponse, error)
	RemovePodSandbox(context.Context, *runtimeapi.RemovePodSandboxRequest,
		...grpc.CallOption) (*runtimeapi.RemovePodSandboxResponse, error)
}

// observer updates a pod's observed state from the runtime before it returns.
type observer interface {
	Refresh(ctx context.Context, uid types.UID) error
}

// logs manages the log directories of pods.
type logs interface {
	LogOrphans(known func(types.UID) bool) ([]types.UID, error)
	RemoveLogs(ctx context.Context, uid types.UID) error
}

// Options of a Collector. All but LinkDir are required.
type Options struct {
	Runtime  runtime
	Observer observer
	Observed *store.Table[types.UID, *pod.Observed]
	// Synced channels are closed once the wanted pods and the pods in the runtime are known. Nothing is removed before.
	Synced []<-chan struct{}
	Pods   pods
	Logs   logs
	// LogsDir is podLogsDir. LinkDir holds links to logs for older log collectors; "" means none.
	LogsDir, LinkDir string
	// Policy limits the dead instances that stay.
	Policy Policy
	// Events receives the failures, as events of Node.
	Events event.Sink
	Node   corev1.ObjectReference
	Log    *slog.Logger
}

// Collector removes garbage.
type Collector struct {
	opts Options
	wake wake.Signal
	wg   sync.WaitGroup

	mu   sync.Mutex
	gone map[types.UID]bool // ended pods that are due for a check

	// Used by Run alone.
	done     chan result
	busy     map[types.UID]bool
	due      map[types.UID]time.Time
	failures map[types.UID]int             // in a row
	last     map[types.UID]map[string]int  // restart counts at the last check of the logs
	excess   map[types.UID]map[string]bool // surplus containers by pod
}

// pods are the pods of this node.
type pods interface {
	// Known reports whether a pod is wanted or being ended.
	Known(types.UID) bool
}

// New returns a Collector that has removed nothing.
func New(o Options) *Collector {
	return &Collector{
		opts: o, wake: wake.New(), gone: map[types.UID]bool{}, done: make(chan result),
		busy: map[types.UID]bool{}, due: map[types.UID]time.Time{}, failures: map[types.UID]int{},
		last: map[types.UID]map[string]int{},
	}
}

// Forget requests the removal of everything that is left of an ended pod. It may be called from any goroutine.
func (g *Collector) Forget(uid types.UID) {
	g.mu.Lock()
	g.gone[uid] = true
	g.mu.Unlock()
	g.wake.Wake()
}

func (g *Collector) takeGone() map[types.UID]bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	gone := g.gone
	g.gone = map[types.UID]bool{}
	return gone
}
