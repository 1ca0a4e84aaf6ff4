package publish

import (
	"context"
	"iter"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/record/event"
)

// Source is the recorder to read from: *event.Recorder.
type Source interface {
	List(event.Filter) ([]corev1.Event, uint64)
	Watch(ctx context.Context, f event.Filter, since uint64) iter.Seq[corev1.Event]
}

// Options of a Publisher.
type Options struct {
	Source Source // required
	// Client is only for events. A client without a rate limit is best. Required.
	Client kubernetes.Interface
	// QPS and Burst are the budget (eventRecordQPS, eventBurst). QPS 0: no limit.
	QPS   float64
	Burst int
	// Path is the file that notes the last revision sent. Empty means that nothing is noted.
	Path string
	// Since is the time of the first event to send if nothing is noted, for example at a node's first start. Zero
	// stands for the start of Run.
	Since time.Time
	// Max is the maximum number of waiting events. Default 1,000.
	Max int
	// Timeout of one request. Default 15 s.
	Timeout time.Duration
	Log     *slog.Logger // required
}

// Stats counts since New.
type Stats struct {
	Created, Patched uint64
	Failures         uint64
	Dropped          uint64 // from the full queue
	Refused          uint64 // by the API server
	Waiting          int
}

// Publisher sends events.
type Publisher struct {
	opts  Options
	wake  wake.Signal // wakes the sender
	notes wake.Signal // the note on disk is out of date

	mu     sync.Mutex
	queue  map[key]*entry
	known  known
	seen   uint64 // the newest revision read
	now    *entry // being sent, not in the queue; nil: none
	stats  Stats
	warned time.Time // when dropped events were last logged
}

// New returns a Publisher.
func New(o Options) *Publisher {
	if o.Max <= 0 {
		o.Max = 1000
	}
	if o.Timeout <= 0 {
		o.Timeout = 15 * time.Second
	}
	return &Publisher{opts: o, wake: wake.New(), notes: wake.New(), queue: map[key]*entry{},
		known: known{max: maxKnown}}
}

// Stats returns the counters.
func (p *Publisher) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Waiting = len(p.queue)
	return s
}
