package timeline

import (
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"k8s.io/apimachinery/pkg/types"
)

// Timeline shows how one pod started, as read at one moment.
type Timeline struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
	// What is the name of the root span, "pod start".
	What string `json:"what"`
	// Start is when the source read the manifest.
	Start time.Time `json:"start"`
	// End is when the pod first became ready, failed or was deleted. Zero until then.
	End time.Time `json:"end,omitzero"`
	// Err is why the pod did not become ready. Reason is its Kubernetes reason, if it has one.
	Err    string `json:"err,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Interrupted says that the agent ended before the timeline did.
	Interrupted bool `json:"interrupted,omitempty"`
	// Read is when the timeline was read. Spans without an end were still running then.
	Read time.Time `json:"read"`
	// Dropped counts the ended spans that were removed to limit the size.
	Dropped int `json:"dropped,omitempty"`
	// Spans are in the order of their beginnings. The first one is the root. Empty in a list.
	Spans []Span `json:"spans,omitempty"`
}

// Span is a step, call or wait of a timeline.
type Span struct {
	ID     string            `json:"id"`
	Parent string            `json:"parent,omitempty"`
	Name   string            `json:"name"`
	Kind   Kind              `json:"kind,omitempty"`
	Start  time.Time         `json:"start"`
	End    time.Time         `json:"end,omitzero"`
	Err    string            `json:"err,omitempty"`
	Reason string            `json:"reason,omitempty"`
	Attrs  map[string]string `json:"attrs,omitempty"`
}

// State is the state of a timeline.
type State string

// A timeline is open at first and ends in one of the other states.
const (
	StateOpen        State = "open"        // the pod is not ready yet
	StateReady       State = "ready"       // the pod became ready
	StateFailed      State = "failed"      // the pod did not become ready
	StateInterrupted State = "interrupted" // the agent ended before the pod was ready or failed
)

// State returns the state of the pod's start.
func (t *Timeline) State() State {
	switch {
	case t.Interrupted:
		return StateInterrupted
	case t.End.IsZero():
		return StateOpen
	case t.Err != "" || t.Reason != "":
		return StateFailed
	}
	return StateReady
}

// header returns t without its spans.
func (t Timeline) header() Timeline {
	t.Spans = nil
	return t
}

// render converts the spans of a trail into a Timeline. spans[0] is the root.
func render(t *trail, spans []recorded, now time.Time) Timeline {
	line := Timeline{
		Namespace: t.namespace,
		Name:      t.name,
		UID:       t.uid,
		Read:      now.Round(0),
		Dropped:   t.dropped,
		Spans:     make([]Span, len(spans)),
	}
	for i, s := range spans {
		line.Spans[i] = renderSpan(s.span)
	}
	root := &line.Spans[0]
	root.Parent = "" // a trace that began outside the agent has no span for it here
	line.What, line.Start, line.End = root.Name, root.Start, root.End
	line.Err, line.Reason = root.Err, root.Reason
	return line
}

func renderSpan(s sdktrace.ReadOnlySpan) Span {
	span := Span{
		ID:    s.SpanContext().SpanID().String(),
		Name:  s.Name(),
		Kind:  KindStep,
		Start: s.StartTime().Round(0), // the monotonic clock means nothing to readers
		End:   s.EndTime().Round(0),
		Err:   s.Status().Description,
	}
	if parent := s.Parent().SpanID(); parent.IsValid() {
		span.Parent = parent.String()
	}
	for _, a := range s.Attributes() {
		switch a.Key {
		case keyKind:
			span.Kind = Kind(a.Value.AsString())
		case keyReason:
			span.Reason = a.Value.AsString()
		case keyUID, keyName, keyNamespace:
		default:
			span.add(a)
		}
	}
	return span
}

func (s *Span) add(a attribute.KeyValue) {
	if s.Attrs == nil {
		s.Attrs = map[string]string{}
	}
	s.Attrs[string(a.Key)] = a.Value.String()
}
