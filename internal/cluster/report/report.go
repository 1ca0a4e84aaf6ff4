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
)

// Health says whether the API server answers. A Writer finds out by itself too.
type Health interface {
	// Answers says so, and gives a channel that is closed when that changes.
	Answers() (ok bool, changed <-chan struct{})
}

// Options of a Writer.
type Options struct {
	// Client is for statuses alone: its rate limit bounds them (none is best, InFlight
	// bounds them too). Required.
	Client kubernetes.Interface
	// Health holds requests back while the API server is away. nil: only failures do.
	Health Health
	// InFlight is how many pods are written at the same time. Default 16.
	InFlight int
	// Timeout of one request. Default 15 s.
	Timeout time.Duration
	// Dropped is told of pods that the API server has no more, also those that the
	// writer has deleted. It must not block. nil: nobody is.
	Dropped func(Row)
	// Log is required.
	Log *slog.Logger
}

// Row is what is to be written of one pod.
type Row struct {
	// UID is the pod's on the node. It differs from that of Pod for a static pod.
	UID types.UID
	// Pod is the newest from the API; the mirror pod of a static pod. nil: the API
	// has none yet, the row waits.
	Pod *corev1.Pod
	// Status is the newest of the agent, with all of its conditions.
	Status corev1.PodStatus
	// Gone: nothing of the pod is left on the node.
	Gone bool
}

// Stats counts since New.
type Stats struct {
	Changes   uint64 // rows that were brought to the API server
	Patches   uint64
	Deletes   uint64
	Reads     uint64
	Failures  uint64        // requests that were answered by an error, or not at all
	Waiting   int           // rows not yet brought
	OldestAge time.Duration // of the longest waiting one
}

// Writer brings rows to the API server. Its methods may be called from any goroutine.
type Writer struct {
	opts Options
	wake chan struct{} // for Run; has room for one

	synced prometheus.Histogram

	mu      sync.Mutex
	rows    map[types.UID]*row
	dirty   map[types.UID]*row // the rows with something to do, in flight ones included
	busy    int
	picks   int
	outage  outage
	stats   Stats
	settled chan struct{} // closed and made anew when a row was brought or forgotten; nil: nobody waits
}

// row is what is known of one pod.
type row struct {
	Row
	// version counts the changes of Row; done is the last one brought.
	version, done uint64
	class         class
	since         time.Time // when the oldest change not yet brought came
	due           time.Time // not before
	hold          time.Time // nor before this, whatever changes: the API server has said so
	busy          bool      // in flight
	fails         int       // in a row
	lost          bool      // the last one without an answer
	doubt         bool      // Pod may not be what the API server has: read it
	dropped       types.UID // the API server has no pod of this UID any more
	sent          *corev1.PodStatus
	residue       string // the difference that was left when sent had been taken
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
	return &Writer{opts: o, wake: make(chan struct{}, 1), synced: newSynced(), rows: map[types.UID]*row{},
		dirty: map[types.UID]*row{}}
}

// Set takes the newest of a pod, in place of what it had before. An object older than
// one that the writer has seen already is not taken for new. It never blocks.
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
	w.awake()
}

// Forget drops a pod. What is in flight of it goes on.
func (w *Writer) Forget(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.rows, uid)
	delete(w.dirty, uid)
	w.settle()
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

func (w *Writer) awake() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// settle tells those who wait in Flush that there is one row less.
func (w *Writer) settle() {
	if w.settled != nil {
		close(w.settled)
		w.settled = nil
	}
}
