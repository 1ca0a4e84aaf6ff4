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

// Attribute keys. Those of the pod follow OpenTelemetry's semantic conventions, and so does error.type, which holds the
// Kubernetes reason.
const (
	keyUID       attribute.Key = "k8s.pod.uid"
	keyName      attribute.Key = "k8s.pod.name"
	keyNamespace attribute.Key = "k8s.namespace.name"
	keyReason    attribute.Key = "error.type"
	keyKind      attribute.Key = "berth.kind"
)

// maxErr is the longest error text of a span, in bytes.
const maxErr = 1024

// Kind is the kind of work that a span stands for.
type Kind string

// The kinds that are drawn differently.
const (
	KindStep  Kind = "step" // also for spans without a kind
	KindCRI   Kind = "cri"  // one call of the runtime
	KindImage Kind = "image"
	KindHook  Kind = "hook"
	KindWait  Kind = "wait" // created by Wait
)

// Attr returns the attribute that gives a span this kind.
func (k Kind) Attr() attribute.KeyValue { return keyKind.String(string(k)) }

// StartPod begins the timeline of a pod's start with its root span. The span starts when the source read the manifest.
// End it when the pod first becomes ready or fails.
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

// Start begins a span below the span in ctx. If ctx has none, Start and the returned span do nothing.
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

// End ends a span. err is the failure of its work, or nil.
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

// Wait begins a span for what the work in ctx waits for, such as "image app". done ends it.
func Wait(ctx context.Context, what string) (done func()) {
	_, span := Start(ctx, what, KindWait.Attr())
	return func() { span.End() }
}
