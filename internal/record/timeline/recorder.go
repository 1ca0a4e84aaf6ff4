package timeline

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/wake"
)

// RecorderOptions configures a Recorder.
type RecorderOptions struct {
	// Dir is the directory with one file per timeline. It is created if missing. If empty, timelines are held in memory
	// only.
	Dir string
	// Max is how many finished timelines are kept. Default: 100.
	Max int
	// Delay is how long changes are collected before they are written, at most 1 s. Default: 500 ms.
	Delay time.Duration
	// Now is the clock. Default: time.Now.
	Now func() time.Time
	// Log receives problems with the files. Default: nothing is logged.
	Log *slog.Logger
}

// Recorder collects the spans of pod starts. It is a span processor of the TracerProvider and ignores traces without a
// pod's root span. All methods may be called at any time, even before and after Run.
type Recorder struct {
	dir   string
	max   int
	delay time.Duration
	now   func() time.Time
	log   *slog.Logger

	dirty   wake.Signal    // wakes Run
	changed wake.Broadcast // when a start has begun or ended

	mu     sync.Mutex
	open   map[trace.TraceID]*trail // those with a span that has not ended
	trails []*trail                 // all kept ones, oldest first
	gone   []*trail                 // removed ones whose files still exist
}

// trail is a timeline that is being recorded.
type trail struct {
	id        trace.TraceID
	uid       types.UID
	namespace string
	name      string
	root      trace.Span
	spans     []recorded // spans[0] is the root; nil once settled
	running   int        // number of spans that have not ended
	dropped   int
	finished  bool // the root has ended
	changed   bool // since the last write
	settled   *Timeline
}

// recorded is one span: the live one until it ends, and then its snapshot.
type recorded struct {
	id    trace.SpanID
	span  sdktrace.ReadOnlySpan
	ended bool
}

// NewRecorder returns an empty Recorder. Run reads the timelines of the previous agent.
func NewRecorder(o RecorderOptions) *Recorder {
	if o.Max <= 0 {
		o.Max = 100
	}
	if o.Delay <= 0 {
		o.Delay = 500 * time.Millisecond
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Recorder{
		dir:   o.Dir,
		max:   o.Max,
		delay: min(o.Delay, time.Second),
		now:   o.Now,
		log:   o.Log,
		dirty: wake.New(),
		open:  map[trace.TraceID]*trail{},
	}
}

// OnStart records a span that begins. A pod's root span opens a timeline.
func (r *Recorder) OnStart(_ context.Context, s sdktrace.ReadWriteSpan) {
	sc := s.SpanContext()
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.open[sc.TraceID()]
	switch {
	case t == nil:
		if t = newTrail(s); t == nil {
			return
		}
		r.open[t.id] = t
		r.trails = append(r.trails, t)
		r.forget()
		r.changed.Wake()
	case t.finished:
		return
	case len(t.spans) >= maxSpans:
		t.spans = trim(t.spans)
		t.dropped += maxSpans - len(t.spans)
		if len(t.spans) >= maxSpans {
			t.dropped++
			return
		}
	}
	t.spans = append(t.spans, recorded{id: sc.SpanID(), span: s})
	t.running++
	r.touch(t)
}

// newTrail opens a timeline if s is a pod's root span. Otherwise it returns nil.
func newTrail(s sdktrace.ReadWriteSpan) *trail {
	if parent := s.Parent(); parent.IsValid() && !parent.IsRemote() {
		return nil // part of a finished timeline, or of no pod's
	}
	t := &trail{id: s.SpanContext().TraceID(), root: s}
	for _, a := range s.Attributes() {
		switch a.Key {
		case keyUID:
			t.uid = types.UID(a.Value.AsString())
		case keyName:
			t.name = a.Value.AsString()
		case keyNamespace:
			t.namespace = a.Value.AsString()
		}
	}
	if t.uid == "" {
		return nil
	}
	t.spans = make([]recorded, 0, 32)
	return t
}

// OnEnd records the end of a span. The root's end finishes the timeline.
func (r *Recorder) OnEnd(s sdktrace.ReadOnlySpan) {
	sc := s.SpanContext()
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.open[sc.TraceID()]
	if t == nil {
		return
	}
	id := sc.SpanID()
	for i := len(t.spans) - 1; i >= 0; i-- { // the last span to begin is often the first to end
		if t.spans[i].id != id {
			continue
		}
		t.spans[i].span, t.spans[i].ended = s, true
		t.running--
		if i == 0 {
			t.finished, t.root = true, nil
			r.forget()
		}
		if t.finished && t.running == 0 {
			delete(r.open, t.id)
		}
		if t.finished {
			r.changed.Wake()
		}
		r.touch(t)
		return
	}
}

// touch wakes Run to write t.
func (r *Recorder) touch(t *trail) {
	t.changed = true
	r.dirty.Wake()
}

// forget removes timelines beyond the limit.
func (r *Recorder) forget() {
	if len(r.trails) <= r.max {
		return
	}
	kept, gone := surplus(r.trails, r.max)
	r.trails, r.gone = kept, append(r.gone, gone...)
	for _, t := range gone {
		delete(r.open, t.id)
	}
	if len(gone) > 0 {
		r.dirty.Wake()
	}
}

// Shutdown does nothing: Run writes the remaining changes when its context ends.
func (r *Recorder) Shutdown(context.Context) error { return nil }

// ForceFlush does nothing: a span can be read as soon as it has begun.
func (r *Recorder) ForceFlush(context.Context) error { return nil }

// Get returns the latest timeline of the pod with this UID.
func (r *Recorder) Get(uid types.UID) (Timeline, bool) {
	return r.latest(func(t *trail) bool { return t.uid == uid })
}

// Find returns the latest timeline of a pod with this name.
func (r *Recorder) Find(namespace, name string) (Timeline, bool) {
	return r.latest(func(t *trail) bool { return t.namespace == namespace && t.name == name })
}

func (r *Recorder) latest(is func(*trail) bool) (Timeline, bool) {
	r.mu.Lock()
	for _, t := range slices.Backward(r.trails) {
		if is(t) {
			return r.readUnlock(t), true
		}
	}
	r.mu.Unlock()
	return Timeline{}, false
}

// List returns all timelines, oldest first, without their spans.
func (r *Recorder) List() []Timeline {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	all := make([]Timeline, 0, len(r.trails))
	for _, t := range r.trails {
		if t.settled != nil {
			all = append(all, t.settled.header())
			continue
		}
		all = append(all, render(t, t.spans[:1], now).header())
	}
	return all
}

// Last returns the latest n timelines with their spans, oldest first.
func (r *Recorder) Last(n int) []Timeline {
	r.mu.Lock()
	trails := slices.Clone(r.trails[max(0, len(r.trails)-n):])
	r.mu.Unlock()
	all := make([]Timeline, 0, len(trails))
	for _, t := range trails {
		r.mu.Lock()
		all = append(all, r.readUnlock(t))
	}
	return all
}

// readUnlock renders a trail. It releases the lock before it renders.
func (r *Recorder) readUnlock(t *trail) Timeline {
	if t.settled != nil {
		defer r.mu.Unlock()
		return *t.settled
	}
	copied, spans, now := *t, slices.Clone(t.spans), r.now()
	r.mu.Unlock()
	return render(&copied, spans, now)
}

// Changed wakes when a start has begun or ended.
func (r *Recorder) Changed() *wake.Broadcast { return &r.changed }

// Context returns ctx with the root span of the pod's open timeline, so that Start adds spans to the timeline. Without
// an open timeline it returns ctx unchanged.
func (r *Recorder) Context(ctx context.Context, uid types.UID) context.Context {
	if root := r.root(uid); root != nil {
		return trace.ContextWithSpan(ctx, root)
	}
	return ctx
}

// Finish ends the root span of the pod's open timeline, if there is one. err is nil when the pod became ready, and
// otherwise says why it did not.
func (r *Recorder) Finish(uid types.UID, err error) {
	if root := r.root(uid); root != nil {
		End(root, err)
	}
}

func (r *Recorder) root(uid types.UID) trace.Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range slices.Backward(r.trails) {
		if t.uid == uid && t.root != nil {
			return t.root
		}
	}
	return nil
}
