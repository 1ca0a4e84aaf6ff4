package event

import corev1 "k8s.io/api/core/v1"

// Sink records Kubernetes events. The agent uses a Recorder; tests collect the events.
type Sink interface {
	// Event records that something happened to ref. eventType is corev1.EventTypeNormal or
	// corev1.EventTypeWarning. Without args, format is the message as it stands. It does no I/O.
	Event(ref corev1.ObjectReference, eventType, reason, format string, args ...any)
}

// Annotator records events that carry annotations for programs.
type Annotator interface {
	Sink
	// Annotated is Event with annotations. Of two events with the same message, the annotations of the first stay.
	Annotated(ref corev1.ObjectReference, annotations map[string]string, eventType, reason, message string)
}
