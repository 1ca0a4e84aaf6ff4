package timeline

import (
	"context"
	"log/slog"
	"sync"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// The bounds of the export.
const (
	queueSize     = 2048 // spans that wait; more are dropped
	batchSize     = 512
	batchDelay    = time.Second // after the first span of a batch
	exportTimeout = 10 * time.Second
)

// batcher hands ended spans to an exporter in batches. It is the SDK's batch
// processor without its timer, which would wake up every few seconds for nothing,
// and without its global error handler, which would speak at every batch.
type batcher struct {
	exporter sdktrace.SpanExporter
	log      *slog.Logger

	queue   chan sdktrace.ReadOnlySpan
	flushes chan chan struct{}
	stop    chan struct{}
	stopped sync.Once
	ended   chan struct{}

	// abort ends an export under way. It is the batcher's own life, not a caller's.
	ctx   context.Context
	abort context.CancelFunc

	failing bool // the last export failed
	lost    int  // spans, since then
}

// startBatcher starts the goroutine that exports; Shutdown ends it.
func startBatcher(e sdktrace.SpanExporter, log *slog.Logger) *batcher {
	ctx, abort := context.WithCancel(context.Background())
	b := &batcher{
		exporter: e,
		log:      log,
		queue:    make(chan sdktrace.ReadOnlySpan, queueSize),
		flushes:  make(chan chan struct{}),
		stop:     make(chan struct{}),
		ended:    make(chan struct{}),
		ctx:      ctx,
		abort:    abort,
	}
	go b.run()
	return b
}

// OnStart does nothing: spans are exported when they have ended.
func (b *batcher) OnStart(context.Context, sdktrace.ReadWriteSpan) {}

// OnEnd queues a sampled span. A full queue drops it.
func (b *batcher) OnEnd(s sdktrace.ReadOnlySpan) {
	if !s.SpanContext().IsSampled() {
		return
	}
	select {
	case b.queue <- s:
	default:
	}
}

// ForceFlush exports what is queued.
func (b *batcher) ForceFlush(ctx context.Context) error {
	done := make(chan struct{})
	select {
	case b.flushes <- done:
	case <-b.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Shutdown exports what is queued and returns when the goroutine has ended, at the end of
// ctx at the latest.
func (b *batcher) Shutdown(ctx context.Context) error {
	b.stopped.Do(func() { close(b.stop) })
	defer context.AfterFunc(ctx, b.abort)()
	<-b.ended
	b.abort()
	return b.exporter.Shutdown(ctx)
}

func (b *batcher) run() {
	defer close(b.ended)
	batch := make([]sdktrace.ReadOnlySpan, 0, batchSize)
	for {
		select {
		case s := <-b.queue:
			batch = append(batch, s)
		case done := <-b.flushes:
			b.drain(batch)
			close(done)
			continue
		case <-b.stop:
			b.drain(batch)
			return
		}
		batch = b.gather(batch)
		batch = b.export(batch)
	}
}

// gather adds to a batch what ends within batchDelay.
func (b *batcher) gather(batch []sdktrace.ReadOnlySpan) []sdktrace.ReadOnlySpan {
	delay := time.NewTimer(batchDelay)
	defer delay.Stop()
	for len(batch) < batchSize {
		select {
		case s := <-b.queue:
			batch = append(batch, s)
		case done := <-b.flushes:
			batch = b.drain(batch)
			close(done)
			return batch
		case <-b.stop: // run sees it too
			return batch
		case <-delay.C:
			return batch
		}
	}
	return batch
}

// drain exports all that is queued.
func (b *batcher) drain(batch []sdktrace.ReadOnlySpan) []sdktrace.ReadOnlySpan {
	for {
		select {
		case s := <-b.queue:
			if batch = append(batch, s); len(batch) == batchSize {
				batch = b.export(batch)
			}
		default:
			return b.export(batch)
		}
	}
}

// export sends a batch and returns it empty, sent or not.
func (b *batcher) export(batch []sdktrace.ReadOnlySpan) []sdktrace.ReadOnlySpan {
	if len(batch) == 0 {
		return batch
	}
	ctx, cancel := context.WithTimeout(b.ctx, exportTimeout)
	defer cancel()
	err := b.exporter.ExportSpans(ctx, batch)
	switch {
	case err != nil && !b.failing:
		b.log.Warn("traces are not exported; spans are dropped until the collector answers", "err", err)
		b.failing, b.lost = true, len(batch)
	case err != nil:
		b.lost += len(batch)
	case b.failing:
		b.log.Info("traces are exported again", "dropped", b.lost)
		b.failing = false
	}
	clear(batch)
	return batch[:0]
}
