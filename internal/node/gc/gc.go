package gc

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/model/pod"
)

// runtime removes what does not run.
type runtime interface {
	RemoveContainer(context.Context, *runtimeapi.RemoveContainerRequest,
		...grpc.CallOption) (*runtimeapi.RemoveContainerResponse, error)
	RemovePodSandbox(context.Context, *runtimeapi.RemovePodSandboxRequest,
		...grpc.CallOption) (*runtimeapi.RemovePodSandboxResponse, error)
}

// observer reads a pod's state from the runtime before it returns.
type observer interface {
	Refresh(ctx context.Context, uid types.UID) error
}

// logs knows the log directories of pods.
type logs interface {
	LogOrphans(known func(types.UID) bool) ([]types.UID, error)
	RemoveLogs(ctx context.Context, uid types.UID) error
}

// Options of a Collector. All but LinkDir are required.
type Options struct {
	Runtime  runtime
	Observer observer
	Observed *store.Table[types.UID, *pod.Observed]
	// Synced are closed when it is known which pods are wanted, and which are in
	// the runtime. Nothing is removed before.
	Synced []<-chan struct{}
	// Known says that a pod is wanted, or being ended.
	Known func(types.UID) bool
	Logs  logs
	// LogsDir is podLogsDir; LinkDir has links to logs for older collectors, ""
	// for none.
	LogsDir, LinkDir string
	// Policy says how many dead instances stay.
	Policy Policy
	Log    *slog.Logger
}

// Collector removes garbage.
type Collector struct {
	opts  Options
	again chan struct{}
	wg    sync.WaitGroup

	mu   sync.Mutex
	gone map[types.UID]bool // not looked at yet

	// Used by Run alone.
	done  chan result
	busy  map[types.UID]bool
	due   map[types.UID]time.Time
	retry map[types.UID]time.Duration
	last  map[types.UID]map[string]int  // restart counts whose logs were looked at
	over  map[types.UID]map[string]bool // containers that are too many for the node
}

// New makes a Collector that has removed nothing.
func New(o Options) *Collector {
	return &Collector{
		opts: o, again: make(chan struct{}, 1), gone: map[types.UID]bool{}, done: make(chan result),
		busy: map[types.UID]bool{}, due: map[types.UID]time.Time{}, retry: map[types.UID]time.Duration{},
		last: map[types.UID]map[string]int{},
	}
}

// Gone has what is left of a pod removed: it was ended, and nobody wants it. It
// may be called from any goroutine.
func (g *Collector) Gone(uid types.UID) {
	g.mu.Lock()
	g.gone[uid] = true
	g.mu.Unlock()
	select {
	case g.again <- struct{}{}:
	default:
	}
}

func (g *Collector) takeGone() map[types.UID]bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	gone := g.gone
	g.gone = map[types.UID]bool{}
	return gone
}
