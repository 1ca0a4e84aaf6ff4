package timeline

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/pod"
)

// scope is the instrumentation scope of every span.
const scope = "github.com/berth-run/berth"

// Attributes with a meaning of their own. The pod's are those of OpenTelemetry's
// semantic conventions, and so is error.type, which holds the Kubernetes reason.
const (
	keyUID       attribute.Key = "k8s.pod.uid"
	keyName      attribute.Key = "k8s.pod.name"
	keyNamespace attribute.Key = "k8s.namespace.name"
	keyReason    attribute.Key = "error.type"
	keyKind      attribute.Key = "berth.kind"
)

// maxErr is the longest error text kept on a span, in bytes.
const maxErr = 1024

// Kind says what a span stands for.
type Kind string

// The kinds that are drawn differently.
const (
	KindStep  Kind = "step" // also of spans that do not say
	KindCRI   Kind = "cri"  // one call to the runtime
	KindImage Kind = "image"
	KindHook  Kind = "hook"
	KindWait  Kind = "wait" // made by Wait
)

// Attr marks a span as being of the kind.
func (k Kind) Attr() attribute.KeyValue { return keyKind.String(string(k)) }

// StartPod begins the timeline of a pod's start: the root span, from the moment
// the source saw the manifest. End it at the first readiness or at the failure.
func StartPod(ctx context.Context, provider trace.TracerProvider, p *pod.Pod) (context.Context, trace.Span) {
	options := []trace.SpanStartOption{
		trace.WithNewRoot(),
		trace.WithAttributes(
			keyUID.String(string(p.UID)),
			keyName.String(p.Name),
			keyNamespace.String(p.Namespace),
		),
	}
	if !p.Seen.IsZero() {
		options = append(options, trace.WithTimestamp(p.Seen))
	}
	return provider.Tracer(scope).Start(ctx, "pod start", options...)
}

// Start begins a span below the one in ctx. Without one there it does nothing,
// and the span it returns neither.
func Start(ctx context.Context, name string, attrs ...attribute.KeyValue) (context.Context, trace.Span) {
	parent := trace.SpanFromContext(ctx)
	if !parent.SpanContext().IsValid() {
		return ctx, parent
	}
	tracer := parent.TracerProvider().Tracer(scope)
	if len(attrs) == 0 {
		return tracer.Start(ctx, name)
	}
	return tracer.Start(ctx, name, trace.WithAttributes(attrs...))
}

// End ends a span; err, if any, is how what it stands for failed.
func End(span trace.Span, err error) {
	if err != nil && span.IsRecording() {
		text := reason.Message(err)
		span.SetStatus(codes.Error, strings.ToValidUTF8(text[:min(len(text), maxErr)], ""))
		if r := reason.Of(err); r != "" {
			span.SetAttributes(keyReason.String(r))
		}
	}
	span.End()
}

// Wait begins a span that says what the work in ctx waits for, "image app" for
// example. done ends it.
func Wait(ctx context.Context, what string) (done func()) {
	_, span := Start(ctx, what, KindWait.Attr())
	return func() { span.End() }
}
