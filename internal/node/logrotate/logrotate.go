package logrotate

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/inotify"
	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/model/pod"
)

// runtime reopens the log file of a container.
type runtime interface {
	ReopenContainerLog(context.Context, *runtimeapi.ReopenContainerLogRequest,
		...grpc.CallOption) (*runtimeapi.ReopenContainerLogResponse, error)
}

// Options of a Rotator. All are required.
type Options struct {
	Runtime  runtime
	Observed *store.Table[types.UID, *pod.Observed]
	Limits   Limits
	// Workers is the number of files compressed at the same time, at least 1.
	Workers int
	Now     func() time.Time
	Log     *slog.Logger
}

// Rotator rotates the logs of a node's containers.
type Rotator struct {
	opts  Options
	slots chan struct{} // holds one element for each running compression
	done  chan result

	// Used by Run alone.
	logs    map[string]*log // by path
	byWatch map[inotify.Watch]*log
	byPod   map[types.UID][]string // paths
	watch   *watcher
	tasks   sync.WaitGroup
	// checking is the number of checks that run. early has the watches with an event that no log has yet: a check may
	// have begun such a watch and not have reported it.
	checking int
	early    map[inotify.Watch]time.Time
}

// log is the state of one log file of a container instance.
type log struct {
	path, id string
	running  bool

	watched      bool
	wd           inotify.Watch
	due          time.Time // time of the next check; zero: after the next event
	checkRotated bool      // the next check includes its rotated files
	reopen       bool      // it was renamed, but the runtime has not opened a new file yet
	rotating     bool      // a check runs, which may rotate it
	packing      bool      // a compression task is running
	repack       bool      // compress more files when that task ends
	gone         bool

	size       int64
	inode      uint64    // at the last check, 0 before
	firstWrite time.Time // when the first write since the last check was noticed
	rate       float64   // bytes per second, 0: unknown
	failures   int       // of the rotation in a row
	// packFailures counts failures of the compression in a row. It has other causes, so it is counted separately.
	packFailures int
}

// New returns a Rotator without logs.
func New(o Options) *Rotator {
	return &Rotator{
		opts: o, slots: make(chan struct{}, max(1, o.Workers)), done: make(chan result),
		logs: map[string]*log{}, byWatch: map[inotify.Watch]*log{}, byPod: map[types.UID][]string{},
		early: map[inotify.Watch]time.Time{},
	}
}
