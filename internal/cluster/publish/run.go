package publish

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/berth-run/berth/internal/base/checkpoint"
	"github.com/berth-run/berth/internal/record/event"
)

const (
	// noteDelay is the least time between two writes of the note.
	noteDelay = 5 * time.Second
	// maxKnown is the maximum number of sent events in memory.
	maxKnown = 4096
	// warnInterval is the least time between two warnings about dropped events.
	warnInterval = time.Minute
)

// note is the content of the file.
type note struct {
	// Sent is a revision. All events up to it were sent or dropped.
	Sent uint64 `json:"sent"`
}

var noteFormat = checkpoint.Format{Version: 1}

// Run sends events until ctx ends. Errors of the API server and the disk are logged and retried, never returned.
func (p *Publisher) Run(ctx context.Context) error {
	since := p.begin()
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() {
		for e := range p.opts.Source.Watch(ctx, event.Filter{}, since) {
			p.enqueue(e, time.Now())
		}
	})
	if p.opts.Path != "" {
		p.notes.Wake() // so that the file exists even if the agent is killed soon
		all.Go(func() { p.keepNote(ctx) })
	}
	p.send(ctx)
	return ctx.Err()
}

// begin returns the last revision that the previous run has sent.
func (p *Publisher) begin() uint64 {
	since := p.opts.Since
	if since.IsZero() {
		since = time.Now()
	}
	p.seen = uint64(since.UnixMicro()) // revisions follow the clock
	if p.opts.Path == "" {
		return p.seen
	}
	old, err := checkpoint.Load[note](p.opts.Path, noteFormat)
	switch {
	case err == nil:
		p.seen = old.Sent
	case !errors.Is(err, fs.ErrNotExist):
		p.opts.Log.Warn("cannot read the note of sent events, earlier events are not sent", "path", p.opts.Path, "err",
			err)
	}
	return p.seen
}

// enqueue adds a new or changed event to the queue.
func (p *Publisher) enqueue(e corev1.Event, now time.Time) {
	revision, err := strconv.ParseUint(e.ResourceVersion, 10, 64)
	if err != nil {
		return // not from a recorder
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = max(p.seen, revision)
	k := key{e.Namespace, e.Name}
	if waiting := p.queue[k]; waiting != nil {
		waiting.event = e
		return
	}
	was, sent := p.known.find(k)
	n := &entry{event: e, class: classify(&e, sent), since: revision}
	if sent {
		n.due = was.last.Add(distance(was.patches))
	}
	p.queue[k] = n
	if len(p.queue) > p.opts.Max {
		p.drop(victim(p.queue), now)
	}
	p.wake.Wake()
	p.notes.Wake()
}

func (p *Publisher) drop(e *entry, now time.Time) {
	delete(p.queue, key{e.event.Namespace, e.event.Name})
	p.stats.Dropped++
	if now.Sub(p.warned) > warnInterval {
		p.warned = now
		p.opts.Log.Warn("too many events wait, some are not sent; berth events lists them", "dropped", p.stats.Dropped)
	}
}

// send sends one event after the other, within the budget.
func (p *Publisher) send(ctx context.Context) {
	limit := rate.NewLimiter(rate.Inf, 1)
	if p.opts.QPS > 0 {
		limit = rate.NewLimiter(rate.Limit(p.opts.QPS), max(p.opts.Burst, 1))
	}
	for fails := 0; ; {
		if p.ready(ctx) != nil || limit.Wait(ctx) != nil {
			return
		}
		e := p.pick() // the most urgent one at this moment
		if e == nil {
			continue
		}
		err := p.publish(ctx, limit, e)
		if ctx.Err() != nil {
			return
		}
		if !unanswered(err) {
			fails = 0
			p.sent(e, err)
			continue
		}
		fails++
		p.putBack(e)
		wait := delay(fails, rand.Float64())
		if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
			wait = max(wait, time.Duration(seconds)*time.Second)
		}
		p.opts.Log.Debug("cannot send events, retrying", "after", wait, "err", err)
		if sleep(ctx, nil, wait) != nil {
			return
		}
	}
}

// ready waits until there is an event to send.
func (p *Publisher) ready(ctx context.Context) error {
	for {
		now := time.Now()
		p.mu.Lock()
		e, at := next(p.queue, now)
		p.mu.Unlock()
		if e != nil {
			return ctx.Err()
		}
		wait := time.Duration(-1)
		if !at.IsZero() {
			wait = at.Sub(now)
		}
		if err := sleep(ctx, p.wake.C(), wait); err != nil {
			return err
		}
	}
}

// sleep returns at a signal, after d (negative: never), or with the error of ctx.
func sleep(ctx context.Context, wake <-chan struct{}, d time.Duration) error {
	var alarm <-chan time.Time
	if d >= 0 {
		alarm = time.After(d)
	}
	select {
	case <-ctx.Done():
	case <-wake:
	case <-alarm:
	}
	return ctx.Err()
}

// pick removes the most urgent event from the queue. It returns nil if none is due.
func (p *Publisher) pick() *entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	e, _ := next(p.queue, time.Now())
	if e != nil {
		delete(p.queue, key{e.event.Namespace, e.event.Name})
		p.now = e
	}
	return e
}

// publish creates the event at the API server, or patches it. A second request also counts against the budget.
func (p *Publisher) publish(ctx context.Context, limit *rate.Limiter, e *entry) error {
	if e.class != repeat {
		err := p.create(ctx, e)
		if !apierrors.IsAlreadyExists(err) || limit.Wait(ctx) != nil {
			return err
		}
	}
	err := p.patch(ctx, e)
	if !apierrors.IsNotFound(err) || limit.Wait(ctx) != nil {
		return err
	}
	return p.create(ctx, e) // the API server has deleted the event
}

func (p *Publisher) create(ctx context.Context, e *entry) error {
	object := render(e.event)
	err := p.do(ctx, p.client().Post().Namespace(object.Namespace).Body(object))
	if err != nil {
		return fmt.Errorf("create event: %w", err)
	}
	p.count(func(s *Stats) { s.Created++ })
	return nil
}

func (p *Publisher) patch(ctx context.Context, e *entry) error {
	body, err := json.Marshal(amendment{e.event.Count, e.event.LastTimestamp, e.event.Message})
	if err != nil {
		return fmt.Errorf("render event: %w", err)
	}
	r := p.client().Patch(types.StrategicMergePatchType).Namespace(e.event.Namespace).Name(shorten(e.event.Name)).Body(
		body)
	if err := p.do(ctx, r); err != nil {
		return fmt.Errorf("patch event: %w", err)
	}
	p.count(func(s *Stats) { s.Patched++ })
	return nil
}

func (p *Publisher) client() rest.Interface { return p.opts.Client.CoreV1().RESTClient() }

// do sends one request, once. The loop retries.
func (p *Publisher) do(ctx context.Context, r *rest.Request) error {
	ctx, cancel := context.WithTimeout(ctx, p.opts.Timeout)
	defer cancel()
	return r.Resource("events").MaxRetries(0).Do(ctx).Error()
}

func (p *Publisher) count(add func(*Stats)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	add(&p.stats)
}

// unanswered reports whether an error is about the API server, not about the event.
func unanswered(err error) bool {
	var status apierrors.APIStatus
	if err == nil {
		return false
	}
	return !errors.As(err, &status) || status.Status().Code >= 500 || status.Status().Code == 0 ||
		apierrors.IsTooManyRequests(err) || apierrors.IsUnauthorized(err)
}

// sent records the result for an event that the API server has accepted or refused.
func (p *Publisher) sent(e *entry, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = nil
	p.notes.Wake()
	if err != nil {
		p.stats.Refused++
		p.opts.Log.Debug("the API server refuses an event", "event", e.event.Namespace+"/"+e.event.Name, "reason",
			e.event.Reason, "err", err)
		return
	}
	k := key{e.event.Namespace, e.event.Name}
	now := history{last: time.Now()}
	if was, again := p.known.find(k); again {
		now.patches = was.patches + 1
	}
	p.known.put(k, now)
	if n := p.queue[k]; n != nil { // it has changed meanwhile
		n.class, n.due = repeat, now.last.Add(distance(now.patches))
	}
}

// putBack returns an unsent event to the queue.
func (p *Publisher) putBack(e *entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = nil
	p.stats.Failures++
	k := key{e.event.Namespace, e.event.Name}
	if newer := p.queue[k]; newer != nil {
		newer.since = e.since
		return
	}
	p.queue[k] = e
	if len(p.queue) > p.opts.Max {
		p.drop(victim(p.queue), time.Now())
	}
}

// keepNote writes the note whenever it has changed, and at the end.
func (p *Publisher) keepNote(ctx context.Context) {
	written := uint64(0)
	var pace checkpoint.Pace
	for more := true; more; {
		more = pace.Wait(ctx, p.notes.C(), noteDelay)
		sent := p.done()
		if sent == written {
			continue
		}
		err := checkpoint.Save(p.opts.Path, noteFormat, note{Sent: sent})
		if err == nil {
			written = sent
		}
		if fails, _ := pace.Record(err); fails {
			p.opts.Log.Warn("cannot write the note of sent events, some may be sent again after a restart", "path",
				p.opts.Path, "err", err)
		}
	}
}

// done returns the last revision before the oldest event that still waits.
func (p *Publisher) done() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	sent := p.seen
	if p.now != nil {
		sent = min(sent, p.now.since-1)
	}
	for _, e := range p.queue {
		sent = min(sent, e.since-1)
	}
	return sent
}
