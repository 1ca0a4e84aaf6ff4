package timeline

import (
	"context"
	"log/slog"
	"sync"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// Limits of the export.
const (
	queueSize     = 2048 // queued spans; more are dropped
	batchSize     = 512
	batchDelay    = time.Second // after the first span of a batch
	exportTimeout = 10 * time.Second
)

// batcher passes ended spans to an exporter in batches. It replaces the SDK's batch processor for two reasons. The
// SDK's timer would wake up every few seconds without work, and its global error handler would log every failed batch.
type batcher struct {
	exporter sdktrace.SpanExporter
	log      *slog.Logger

	queue   chan sdktrace.ReadOnlySpan
	flushes chan chan struct{}
	stop    chan struct{}
	stopped sync.Once
	ended   chan struct{}

	// abort ends a running export. ctx is the batcher's own context and not a caller's.
	ctx   context.Context
	abort context.CancelFunc

	failing bool // the last export failed
	lost    int  // spans since then
}

// startBatcher starts the goroutine that exports. Shutdown ends it.
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

// OnStart does nothing: spans are exported after they have ended.
func (b *batcher) OnStart(context.Context, sdktrace.ReadWriteSpan) {}

// OnEnd queues a sampled span. It drops the span if the queue is full.
func (b *batcher) OnEnd(s sdktrace.ReadOnlySpan) {
	if !s.SpanContext().IsSampled() {
		return
	}
	select {
	case b.queue <- s:
	default:
	}
}

// ForceFlush exports all queued spans.
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

// Shutdown exports all queued spans and returns when the goroutine has ended, at the latest when ctx ends.
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

// gather adds the spans to a batch that end within batchDelay.
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
		case <-b.stop: // run receives it too
			return batch
		case <-delay.C:
			return batch
		}
	}
	return batch
}

// drain exports all queued spans.
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

// export sends a batch and returns it empty, even after an error.
func (b *batcher) export(batch []sdktrace.ReadOnlySpan) []sdktrace.ReadOnlySpan {
	if len(batch) == 0 {
		return batch
	}
	ctx, cancel := context.WithTimeout(b.ctx, exportTimeout)
	defer cancel()
	err := b.exporter.ExportSpans(ctx, batch)
	switch {
	case err != nil && !b.failing:
		b.log.Warn("export traces failed, dropping spans until the collector answers", "err", err)
		b.failing, b.lost = true, len(batch)
	case err != nil:
		b.lost += len(batch)
	case b.failing:
		b.log.Info("traces exported again", "dropped", b.lost)
		b.failing = false
	}
	clear(batch)
	return batch[:0]
}
