package spans

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// shownSpans are the spans of containerd to record, with their names in Berth's traces. Only work that takes a notable
// part of a call is listed.
var shownSpans = map[string]string{
	"cni.setup_pod_network": "network",
}

// Context returns a context that sends containerd's spans of a RunPodSandbox call to provider. They become children of
// the span that the caller has sent (W3C trace context). containerd gets the provider from the span in its context.
func Context(ctx context.Context, provider trace.TracerProvider, method string) context.Context {
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
	return trace.ContextWithSpan(ctx, parentSpan{span, selected{provider, provider}})
}

// parentSpan is a span whose children come from provider. The span may belong to the caller, who then ends it.
type parentSpan struct {
	trace.Span
	provider trace.TracerProvider
}

// TracerProvider implements trace.Span.
func (p parentSpan) TracerProvider() trace.TracerProvider { return p.provider }

// selected records only the spans in shownSpans. The children of any other span become children of its parent.
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
	span = parentSpan{span, t.provider}
	return trace.ContextWithSpan(ctx, span), span
}
