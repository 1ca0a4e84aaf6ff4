package timeline

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	coltrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"

	"github.com/berth-run/berth/internal/base/logtest"
)

// collector is an OTLP collector that records the names of spans.
type collector struct {
	coltrace.UnimplementedTraceServiceServer
	mu    sync.Mutex
	spans []string
}

func (c *collector) Export(_ context.Context,
	req *coltrace.ExportTraceServiceRequest) (*coltrace.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range req.ResourceSpans {
		service := ""
		for _, a := range r.Resource.Attributes {
			if a.Key == "service.name" {
				service = a.Value.GetStringValue()
			}
		}
		for _, s := range r.ScopeSpans {
			for _, span := range s.Spans {
				c.spans = append(c.spans, service+"/"+span.Name)
			}
		}
	}
	return &coltrace.ExportTraceServiceResponse{}, nil
}

// listen serves the collector on loopback until the test ends.
func (c *collector) listen(t *testing.T) (endpoint string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	coltrace.RegisterTraceServiceServer(server, c)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func TestExport(t *testing.T) {
	sampled := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, TraceFlags: trace.FlagsSampled, Remote: true,
	})
	tests := []struct {
		name   string
		rate   int32
		parent trace.SpanContext
		want   []string
	}{
		{"all", 1_000_000, trace.SpanContext{}, []string{"test/step", "test/pod start"}},
		{"none", 0, trace.SpanContext{}, nil},
		{"none but what was sampled elsewhere", 0, sampled, []string{"test/step", "test/pod start"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var c collector
			r := NewRecorder(RecorderOptions{})
			tp, shutdown, err := Provider(t.Context(), ProviderOptions{
				Recorder: r,
				Service:  "test",
				OTLP:     &OTLP{Endpoint: c.listen(t), SamplingRatePerMillion: tt.rate},
			})
			if err != nil {
				t.Fatal(err)
			}
			var ctx context.Context
			if tt.parent.IsValid() {
				ctx = trace.ContextWithRemoteSpanContext(t.Context(), tt.parent)
				ctx, _ = tp.Tracer(scope).Start(ctx, "pod start", trace.WithAttributes(keyUID.String("uid-web")))
			} else {
				ctx, _ = StartPod(t.Context(), tp, newPod("web"))
			}
			_, step := Start(ctx, "step")
			End(step, nil)
			r.Finish("uid-web", nil)
			if err := shutdown(t.Context()); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, c.spans); diff != "" {
				t.Errorf("exported: %s", diff)
			}
			line, _ := r.Get("uid-web")
			if diff := cmp.Diff(map[string]string{"pod start": "", "step": "pod start"}, parents(line)); diff != "" {
				t.Errorf("recorded: %s", diff)
			}
		})
	}
}

func TestNobodyListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	endpoint := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	var said logtest.Lines
	tp, shutdown, err := Provider(t.Context(), ProviderOptions{
		OTLP: &OTLP{Endpoint: endpoint, SamplingRatePerMillion: 1_000_000},
		Log:  said.Logger(),
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		_, root := StartPod(t.Context(), tp, newPod("web"))
		End(root, nil)
		if err := tp.ForceFlush(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if err := shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if said.Count("\n") != 1 || said.Count("export traces failed") != 1 {
		t.Errorf("said %s", said.String())
	}
}

func TestBadOptions(t *testing.T) {
	tests := []struct {
		otlp OTLP
		want string
	}{
		{OTLP{Endpoint: "http://collector"}, `tracing endpoint "http://collector" is not host:port`},
		{OTLP{Endpoint: "collector"}, `tracing endpoint "collector" is not host:port`},
		{OTLP{SamplingRatePerMillion: -1}, "tracing sampling rate -1 is not in 0 to 1,000,000"},
		{OTLP{SamplingRatePerMillion: 1_000_001}, "tracing sampling rate 1000001 is not in 0 to 1,000,000"},
	}
	for _, tt := range tests {
		_, _, err := Provider(t.Context(), ProviderOptions{OTLP: &tt.otlp})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("error %v, want %q", err, tt.want)
		}
	}
}

// exporter records the sizes of batches. It can fail the first ones or hang.
type exporter struct {
	fail int
	hang bool
	down bool

	mu      sync.Mutex
	batches []int
}

func (e *exporter) sizes() []int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.batches)
}

func (e *exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.batches = append(e.batches, len(spans))
	switch {
	case e.hang:
		<-ctx.Done()
		return ctx.Err()
	case len(e.batches) <= e.fail:
		return errors.New("unavailable")
	}
	return nil
}

func (e *exporter) Shutdown(context.Context) error {
	e.down = true
	return nil
}

// sampledSpans returns ended spans that are sampled for the export.
func sampledSpans(n int) []sdktrace.ReadOnlySpan {
	stubs := make(tracetest.SpanStubs, n)
	for i := range stubs {
		stubs[i].SpanContext = trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, TraceFlags: trace.FlagsSampled,
		})
	}
	return stubs.Snapshots()
}

func TestBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e exporter
		b := startBatcher(&e, new(logtest.Lines).Logger())
		send := func(n int) {
			for _, s := range sampledSpans(n) {
				b.OnEnd(s)
			}
			synctest.Wait()
		}
		send(3)
		if sizes := e.sizes(); sizes != nil {
			t.Errorf("exported at once: %v", sizes)
		}
		time.Sleep(batchDelay)
		synctest.Wait()
		send(batchSize + 1)
		send(1)
		if err := b.ForceFlush(t.Context()); err != nil {
			t.Error(err)
		}
		send(4)
		if err := b.Shutdown(t.Context()); err != nil || !e.down {
			t.Errorf("shutdown: %v, exporter down %v", err, e.down)
		}
		if err := b.ForceFlush(t.Context()); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff([]int{3, batchSize, 2, 4}, e.sizes()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestCollectorFailsAndRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said logtest.Lines
		b := startBatcher(&exporter{fail: 3}, said.Logger())
		for range 4 {
			b.OnEnd(sampledSpans(1)[0])
			time.Sleep(time.Minute)
		}
		if err := b.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if said.Count("export traces failed") != 1 || said.Count("exported again\" dropped=3") != 1 ||
			said.Count("\n") != 2 {
			t.Errorf("said %s", said.String())
		}
	})
}

func TestCollectorHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := exporter{hang: true}
		b := startBatcher(&e, new(logtest.Lines).Logger())
		for _, s := range sampledSpans(2 * queueSize) {
			b.OnEnd(s) // must not block
		}
		synctest.Wait()
		if waiting := len(b.queue); waiting > queueSize {
			t.Errorf("%d spans wait", waiting)
		}
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := b.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took > time.Second {
			t.Errorf("shutdown took %s", took)
		}
	})
}
