package logrotate

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

// runtime opens the file of a log anew.
type runtime interface {
	ReopenContainerLog(context.Context, *runtimeapi.ReopenContainerLogRequest,
		...grpc.CallOption) (*runtimeapi.ReopenContainerLogResponse, error)
}

// Options of a Rotator. All are required.
type Options struct {
	Runtime  runtime
	Observed *store.Table[types.UID, *pod.Observed]
	Limits   Limits
	// Workers is how many files are compressed at the same time, at least 1.
	Workers int
	Now     func() time.Time
	Log     *slog.Logger
}

// Rotator rotates the logs of a node's containers.
type Rotator struct {
	opts   Options
	places chan struct{} // one for each file that is being compressed
	done   chan result

	// Used by Run alone.
	logs    map[string]*log // by path
	byWatch map[int32]*log
	byPod   map[types.UID][]string // paths
	watch   *watcher
	tasks   sync.WaitGroup
}

// log is what is known of one file that a container instance writes to.
type log struct {
	path, id string
	running  bool

	watched  bool
	wd       int32
	due      time.Time // when to look at it; zero: when something happens
	untidy   bool      // look at its rotated files too
	reopen   bool      // it was renamed, and the runtime has not opened a new one yet
	rotating bool      // a task is on it
	packing  bool      // a task compresses its rotated files
	repack   bool      // there are more to compress after that
	gone     bool

	size  int64
	wrote time.Time     // when the first write since the last look was seen
	rate  float64       // bytes per second, 0: not known
	retry time.Duration // after the last failure
	// packRetry is that of the compression, which fails for reasons of its own.
	packRetry time.Duration
}

// New makes a Rotator that has looked at nothing.
func New(o Options) *Rotator {
	return &Rotator{
		opts: o, places: make(chan struct{}, max(1, o.Workers)), done: make(chan result),
		logs: map[string]*log{}, byWatch: map[int32]*log{}, byPod: map[types.UID][]string{},
	}
}
