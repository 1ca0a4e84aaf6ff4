package shutdown

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/godbus/dbus/v5"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/record/event"
)

const (
	message = "Pod was terminated in response to imminent node shutdown."
	problem = "node is shutting down"
)

// pods are the pods of this node.
type pods interface {
	// Active returns all pods that have not ended, static ones included.
	Active() []*corev1.Pod
	Stop(types.UID, pod.Stop)
	// Ended waits until nothing of the pod runs and none of its volumes is mounted. It returns the error of ctx if that
	// ends earlier.
	Ended(context.Context, types.UID) error
}

// statuses sends the statuses of pods to the API server.
type statuses interface {
	// Flush waits until the API server has every status with a final phase, or until ctx ends. Without an API server it
	// does nothing.
	Flush(context.Context) error
}

// condition is the condition of the node for its shutdown.
type condition interface {
	// SetProblem sets the problem, "" when it is over. It does not block.
	SetProblem(problem string)
}

// Options of a Manager.
type Options struct {
	// Groups are sorted by priority. Without groups, Run does nothing.
	Groups []Group
	Pods   pods
	// Settled is closed once Pods knows everything that an earlier agent left running. It matters to an agent that
	// starts during a shutdown. Nil: Pods knows it already.
	Settled   <-chan struct{}
	Statuses  statuses
	Condition condition
	// Path is the file of the journal. Its directory exists.
	Path string
	// Bus connects to the bus of logind. Default: the system bus.
	Bus func(context.Context) (*dbus.Conn, error)
	// DropInDir is the directory for logind's drop-in. Default: the constant DropInDir.
	DropInDir string
	// Ref names the node in events.
	Ref    corev1.ObjectReference
	Events event.Sink
	Log    *slog.Logger
}

// Manager waits for a shutdown of the machine and then ends the pods. It is safe for concurrent use.
type Manager struct {
	o       Options
	metrics metrics

	mu     sync.Mutex
	down   bool
	cancel context.CancelFunc // cancels the running end; nil if there was none
	lock   *os.File           // the inhibitor, nil when it is released

	ending sync.Mutex // one shutdown at a time
}

// New returns a manager that has not connected yet.
func New(o Options) *Manager {
	if o.Bus == nil {
		o.Bus = func(ctx context.Context) (*dbus.Conn, error) { return dbus.ConnectSystemBus(dbus.WithContext(ctx)) }
	}
	if o.DropInDir == "" {
		o.DropInDir = DropInDir
	}
	return &Manager{o: o, metrics: newMetrics()}
}

// Down reports whether the machine is shutting down.
func (m *Manager) Down() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.down
}

// Admit rejects pods while the machine is shutting down.
func (m *Manager) Admit() error {
	if m.Down() {
		return reason.New(reason.NodeShutdown, "Pod was rejected as the node is shutting down.")
	}
	return nil
}

// setInhibitor stores a new inhibitor, or nil, and releases the previous one.
func (m *Manager) setInhibitor(lock *os.File) {
	m.mu.Lock()
	was := m.lock
	m.lock = lock
	m.mu.Unlock()
	if was != nil {
		_ = was.Close() // it can only fail if it is closed already
	}
}

// release lets the machine shut down, unless the shutdown was cancelled. It reports which.
func (m *Manager) release(ending context.Context) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ending.Err() != nil {
		return false
	}
	if m.lock != nil {
		_ = m.lock.Close() // it can only fail if it is closed already
	}
	m.lock = nil
	return true
}

// stop ends a pod.
func (m *Manager) stop(e Ending, now time.Time) {
	grace := e.Grace
	m.o.Pods.Stop(e.Pod.UID, pod.Stop{Reason: pod.StopShutdown, Message: message, Grace: &grace, At: now})
}
