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
)

const (
	message = "Pod was terminated in response to imminent node shutdown."
	problem = "node is shutting down"
)

// pods are those of this node.
type pods interface {
	// Active are all that are not over, static ones included.
	Active() []*corev1.Pod
	Stop(types.UID, pod.Stop)
	// Ended returns when nothing of the pod runs and none of its volumes is
	// mounted, or when ctx ends, then with its error.
	Ended(context.Context, types.UID) error
}

// statuses sends the statuses of pods.
type statuses interface {
	// Flush returns when the API server has every status whose phase is terminal,
	// or when ctx ends. Without an API server there is nothing to send.
	Flush(context.Context) error
}

// events is where users are told.
type events interface {
	Event(ref corev1.ObjectReference, eventType, reason, format string, args ...any)
}

// Options of a Manager.
type Options struct {
	// Groups ascend by priority. Without any, Run does nothing.
	Groups []Group
	Pods   pods
	// Settled is closed when Pods has all that an earlier agent left running: of
	// those that come up while the machine goes down already. nil: it has them.
	Settled  <-chan struct{}
	Statuses statuses
	// Tell is told the problem of the node, "" when it is over: the condition
	// table's Set of kind Shutdown. It does not block.
	Tell func(problem string)
	// Path is the file of the journal; its directory exists.
	Path string
	// Bus connects to the bus of logind. Default: the system bus.
	Bus func(context.Context) (*dbus.Conn, error)
	// DropInDir is where logind's drop-in is written. Default: DropInDir.
	DropInDir string
	// Ref names the node in events.
	Ref    corev1.ObjectReference
	Events events
	Log    *slog.Logger
}

// Manager waits for the machine to go down and ends the pods then. It is safe for
// concurrent use.
type Manager struct {
	o       Options
	metrics metrics

	mu     sync.Mutex
	down   bool
	cancel context.CancelFunc // ends the ending of pods; nil when none goes on
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

// Down says whether the machine is going down.
func (m *Manager) Down() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.down
}

// Admit refuses pods while the machine goes down.
func (m *Manager) Admit() error {
	if m.Down() {
		return reason.New(reason.NodeShutdown, "Pod was rejected as the node is shutting down.")
	}
	return nil
}

// hold keeps the inhibitor; the one before is let go.
func (m *Manager) hold(lock *os.File) {
	m.mu.Lock()
	was := m.lock
	m.lock = lock
	m.mu.Unlock()
	if was != nil {
		_ = was.Close() // all that can be wrong is that it is closed
	}
}

// release lets the machine go down, unless its shutdown was called off.
func (m *Manager) release(ending context.Context) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ending.Err() != nil {
		return false
	}
	if m.lock != nil {
		_ = m.lock.Close() // all that can be wrong is that it is closed
	}
	m.lock = nil
	return true
}

// stop ends a pod.
func (m *Manager) stop(e Ending, now time.Time) {
	grace := e.Grace
	m.o.Pods.Stop(e.Pod.UID, pod.Stop{Reason: pod.StopShutdown, Message: message, Grace: &grace, At: now})
}
