package problem

import (
	"errors"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/pod/source"
	"github.com/berth-run/berth/internal/record/event"
)

// Reporter receives each problem of a manifest once.
type Reporter interface {
	SourceProblem(source.Problem)
	SourceResolved(source.Problem)
}

// None drops the problems of manifests, which the next agent reports.
type None struct{}

// SourceProblem implements Reporter.
func (None) SourceProblem(source.Problem) {}

// SourceResolved implements Reporter.
func (None) SourceResolved(source.Problem) {}

// Events records an event for each manifest that a source rejects, and when manifests disappear or return.
type Events struct {
	events *event.Recorder
	node   string
}

// New returns Events of a node.
func New(events *event.Recorder, node string) Events { return Events{events, node} }

// SourceProblem records an event on the object of the manifest. Without a name in the manifest there is no object to
// record it on. The event of missing manifests is the node's.
func (p Events) SourceProblem(problem source.Problem) {
	if _, ok := errors.AsType[*source.MissingError](problem.Err); ok {
		p.events.Event(event.NodeRef(p.node), corev1.EventTypeWarning, reason.ManifestsMissing, "%v", problem.Err)
		return
	}
	ref := corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: problem.Pod.Namespace,
		Name: problem.Pod.Name}
	if kind, ok := object.KindNamed(problem.Object.Kind); ok {
		ref = corev1.ObjectReference{Kind: kind.Name, APIVersion: kind.APIVersion, Namespace: problem.Object.Namespace,
			Name: problem.Object.Name}
	}
	if ref.Name == "" {
		return
	}
	why := reason.FailedValidation
	if problem.Ignored {
		why = reason.FieldIgnored
	}
	p.events.Event(ref, corev1.EventTypeWarning, why, "%s: %v", problem.Origin, problem.Err)
}

// SourceResolved records the event that missing manifests are back.
func (p Events) SourceResolved(problem source.Problem) {
	if missing, ok := errors.AsType[*source.MissingError](problem.Err); ok {
		p.events.Event(event.NodeRef(p.node), corev1.EventTypeNormal, reason.ManifestsReturned,
			"%s is there again: its manifests count", missing.Path)
	}
}
