package power

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/model/observed"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/node/condition"
	"github.com/berth-run/berth/internal/node/shutdown"
	"github.com/berth-run/berth/internal/pod/fleet"
	"github.com/berth-run/berth/internal/pod/worker"
	"github.com/berth-run/berth/internal/record/event"
)

type statuses interface {
	// Flush sends the pending statuses to the API server, if there is one.
	Flush(context.Context) error
}

// Options of a Machine. All are required but Conditions.
type Options struct {
	Config *config.Config
	Fleet  *fleet.Fleet
	// Observed are the pods that the runtime shows.
	Observed *observed.Table
	Statuses statuses
	// Conditions are the node's conditions. It is nil without a cluster.
	Conditions *condition.Table
	Metrics    prometheus.Registerer
	Events     *event.Recorder
	Log        *slog.Logger
}

// Machine ends the pods when the machine shuts down. It implements the interfaces for pods of package shutdown.
type Machine struct {
	Options
	manager *shutdown.Manager

	mu      sync.Mutex
	waiting map[types.UID][]chan struct{}
}

// New makes a Machine that has not connected to logind.
func New(o Options) (*Machine, error) {
	m := &Machine{Options: o, waiting: map[types.UID][]chan struct{}{}}
	groups := make([]shutdown.Group, len(o.Config.Shutdown))
	for i, g := range o.Config.Shutdown {
		groups[i] = shutdown.Group(g)
	}
	m.manager = shutdown.New(shutdown.Options{
		Groups: groups, Pods: m, Settled: o.Fleet.Settled(), Statuses: o.Statuses, Condition: m,
		Path:   filepath.Join(o.Config.RootDir, "shutdown.json"),
		Ref:    event.NodeRef(o.Config.NodeName),
		Events: o.Events, Log: o.Log,
	})
	if err := m.manager.Register(o.Metrics); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return m, nil
}

// SetProblem implements the condition of the manager.
func (m *Machine) SetProblem(problem string) {
	if m.Conditions != nil {
		m.Conditions.Set(condition.Shutdown, problem)
	}
	if problem == "" {
		m.Fleet.Reconsider() // pods may wait for the end of the shutdown
	}
}

// Run delays each shutdown of the machine until the pods have ended. It returns when ctx ends.
func (m *Machine) Run(ctx context.Context) error { return m.manager.Run(ctx) }

// Refuses returns the verdict on a new pod while the machine shuts down, and false otherwise.
func (m *Machine) Refuses(p *pod.Pod) (fleet.Verdict, bool) {
	return refuse(p, m.Observed.Observed(p.UID).Running(), m.manager.Admit())
}

// PodChanged implements fleet.Watcher. It wakes the callers of Ended if the pod has ended.
func (m *Machine) PodChanged(uid types.UID) {
	m.mu.Lock()
	waiting := m.waiting[uid]
	m.mu.Unlock()
	if len(waiting) == 0 || !m.over(uid) {
		return
	}
	m.mu.Lock()
	waiting = m.waiting[uid]
	delete(m.waiting, uid)
	m.mu.Unlock()
	for _, w := range waiting {
		close(w)
	}
}

// over reports whether nothing of a pod runs or is mounted any more.
func (m *Machine) over(uid types.UID) bool {
	member, here := m.Fleet.Member(uid)
	return !here || member.Gone || member.State.Stage == worker.Terminated
}

// Active returns the pods that hold resources of the node.
func (m *Machine) Active() []*corev1.Pod { return m.Fleet.Pods() }

// Stop ends a pod.
func (m *Machine) Stop(uid types.UID, s pod.Stop) { m.Fleet.Stop(uid, s) }

// Ended waits until a pod has ended or ctx ends.
func (m *Machine) Ended(ctx context.Context, uid types.UID) error {
	done := make(chan struct{})
	m.mu.Lock()
	m.waiting[uid] = append(m.waiting[uid], done)
	m.mu.Unlock()
	m.PodChanged(uid) // the pod may have ended already
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
