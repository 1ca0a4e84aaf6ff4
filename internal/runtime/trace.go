package runtime

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// shownSpans are the spans of containerd that are recorded, and what they are
// called: what takes its time inside of a call and has a name of its own.
var shownSpans = map[string]string{
	"cni.setup_pod_network": "network",
}

// traced returns a context in which containerd's spans of a RunPodSandbox go to
// provider, below the span that the caller has sent along (W3C trace context).
// containerd asks the span in its context for the provider.
func traced(ctx context.Context, provider trace.TracerProvider, method string) context.Context {
	if provider == nil || method != runtimeapi.RuntimeService_RunPodSandbox_FullMethodName {
		return ctx
	}
	header := propagation.MapCarrier{}
	md, _ := metadata.FromIncomingContext(ctx)
	for _, key := range (propagation.TraceContext{}).Fields() {
		if values := md.Get(key); len(values) > 0 {
			header[key] = values[0]
		}
	}
	ctx = propagation.TraceContext{}.Extract(ctx, header)
	span := trace.SpanFromContext(ctx)
	if !span.SpanContext().IsValid() {
		return ctx
	}
	return trace.ContextWithSpan(ctx, placed{span, selected{provider, provider}})
}

// placed is a span, often one that is not ours to end, below which provider makes spans.
type placed struct {
	trace.Span
	provider trace.TracerProvider
}

// TracerProvider implements trace.Span.
func (p placed) TracerProvider() trace.TracerProvider { return p.provider }

// selected records the spans of shownSpans. The others are left out: what is
// below them is below their parent.
type selected struct {
	trace.TracerProvider
	to trace.TracerProvider
}

// Tracer implements trace.TracerProvider.
func (s selected) Tracer(name string, o ...trace.TracerOption) trace.Tracer {
	t := s.to.Tracer(name, o...)
	return selectedTracer{t, t, s}
}

type selectedTracer struct {
	trace.Tracer
	to       trace.Tracer
	provider selected
}

// Start implements trace.Tracer.
func (t selectedTracer) Start(ctx context.Context, name string, o ...trace.SpanStartOption) (context.Context,
	trace.Span) {
	var span trace.Span
	if shown, ok := shownSpans[name]; ok {
		ctx, span = t.to.Start(ctx, shown, o...)
	} else {
		span = trace.SpanFromContext(trace.ContextWithSpanContext(ctx, trace.SpanContextFromContext(ctx)))
	}
	span = placed{span, t.provider}
	return trace.ContextWithSpan(ctx, span), span
}
