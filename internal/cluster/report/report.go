package report

import (
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-run/berth/internal/base/wake"
)

// Health reports whether the API server answers. A Writer also notices failures by itself.
type Health interface {
	// Answers returns the current state, and a channel that is closed when the state changes.
	Answers() (ok bool, changed <-chan struct{})
}

// Options of a Writer.
type Options struct {
	// Client is only for statuses. Its rate limit applies to them. InFlight limits them too, so a client without a
	// limit is best. Required.
	Client kubernetes.Interface
	// Health holds requests back while the API server is away. It is optional.
	Health Health
	// InFlight is how many pods are written at the same time. Default 16.
	InFlight int
	// Timeout of one request. Default 15 s.
	Timeout time.Duration
	// Dropped is called for pods that the API server does not have any longer, including those that the writer has
	// deleted. It must not block. It is optional.
	Dropped func(Row)
	// Log is required.
	Log *slog.Logger
}

// Row is the wanted status of one pod.
type Row struct {
	// UID is the pod's on the node. For a static pod it differs from the UID of Pod.
	UID types.UID
	// Pod is the newest object from the API. For a static pod it is the mirror pod. While it is nil, the row waits.
	Pod *corev1.Pod
	// Status is the agent's newest status, with all of its conditions.
	Status corev1.PodStatus
	// Gone means that nothing of the pod is left on the node.
	Gone bool
}

// Stats counts since New.
type Stats struct {
	Changes   uint64 // rows that were sent
	Patches   uint64
	Deletes   uint64
	Reads     uint64
	Failures  uint64        // requests with an error or without a response
	Waiting   int           // rows not yet sent
	OldestAge time.Duration // of the row that waits longest
}

// Writer sends rows to the API server. Its methods may be called from any goroutine.
type Writer struct {
	opts Options
	wake wake.Signal // wakes Run

	synced prometheus.Histogram

	mu      sync.Mutex
	rows    map[types.UID]*row
	dirty   map[types.UID]*row // the rows to send, including those in flight
	busy    int
	picks   int
	outage  outage
	stats   Stats
	settled wake.Broadcast // a row was sent or forgotten
}

// row is the state of one pod.
type row struct {
	Row
	// version counts the changes of Row. done is the last version sent.
	version, done uint64
	class         class
	since         time.Time // when the oldest unsent change was made
	due           time.Time // not before
	hold          time.Time // nor before this, even after a change: the API server asked for it
	busy          bool      // in flight
	fails         int       // in a row
	lost          bool      // the last request had no response
	reread        bool      // Pod may be outdated: read it first
	dropped       types.UID // the API server does not have the pod of this UID any longer
	sent          *corev1.PodStatus
	residue       string // the difference left after sent was accepted
	repairs       repairs
	first         times // see merge
}

// New returns a Writer without rows.
func New(o Options) *Writer {
	if o.InFlight <= 0 {
		o.InFlight = 16
	}
	if o.Timeout <= 0 {
		o.Timeout = 15 * time.Second
	}
	return &Writer{opts: o, wake: wake.New(), synced: newSynced(), rows: map[types.UID]*row{},
		dirty: map[types.UID]*row{}}
}

// Set replaces the row of a pod. It keeps a known object that is newer than the row's. It never blocks.
func (w *Writer) Set(r Row) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.rows[r.UID]
	if e == nil {
		e = &row{}
		w.rows[r.UID] = e
	}
	changed := e.version == 0 || e.Gone != r.Gone || !equality.Semantic.DeepEqual(e.Status, r.Status)
	known := e.Pod
	e.Row = r
	if known != nil && (r.Pod == nil || r.Pod.UID == known.UID && older(r.Pod, known)) {
		e.Pod = known
	}
	if known != nil && e.Pod.UID != known.UID {
		*e = row{Row: r, version: e.version, done: e.done, busy: e.busy, dropped: e.dropped, first: e.first}
	}
	e.first = e.first.with(r.Status)
	if e.Pod == nil || e.Pod.UID == e.dropped {
		e.version++
		e.done = e.version
		return
	}
	now := time.Now()
	if changed {
		e.due = sooner(e.due, e.hold, now, e.fails)
	}
	e.version++
	e.class = urgency(e.Pod.Status, e.Status, e.Gone)
	if e.since.IsZero() {
		e.since = now
	}
	w.dirty[r.UID] = e
	w.wake.Wake()
}

// Forget drops a pod. A request in flight is completed.
func (w *Writer) Forget(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.rows, uid)
	delete(w.dirty, uid)
	w.settled.Wake()
}

// Stats returns the counters.
func (w *Writer) Stats() Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.stats
	s.Waiting = len(w.dirty)
	now := time.Now()
	for _, e := range w.dirty {
		s.OldestAge = max(s.OldestAge, now.Sub(e.since))
	}
	return s
}
