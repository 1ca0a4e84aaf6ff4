package agent

import (
	"errors"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/agent/explain"
	"github.com/berth-run/berth/internal/agent/input"
	"github.com/berth-run/berth/internal/agent/local"
	"github.com/berth-run/berth/internal/agent/pressure"
	"github.com/berth-run/berth/internal/api/files"
	"github.com/berth-run/berth/internal/api/nodeinfo"
	"github.com/berth-run/berth/internal/api/server"
	"github.com/berth-run/berth/internal/api/stream"
	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/pod/source"
	"github.com/berth-run/berth/internal/record/event"
)

// node returns the state of this agent for the local API.
func (a *Agent) node() local.Node {
	return local.Node{Name: a.Config.NodeName, Root: a.Config.RootDir, Began: a.began, Engine: a.machine.engine,
		Monitor: a.machine.monitor, Problems: a.demand.sources.Problems, Fleet: a.tables.fleet,
		Conditions: a.tables.conditions, Embedded: a.Config.Runtime.Embedded,
		Evictions: pressure.View{Memory: a.doors.pressure.evictor, Pods: a.doors.pressure.pods,
			Disk: a.doors.pressure.disk}}
}

func (a *Agent) serverOptions(in input.Node) server.Options {
	pods := local.Pods{
		Node: a.Config.NodeName, Statuses: a.tables.statuses, Sources: a.demand.sources, Fleet: a.tables.fleet,
		Explainer: explain.Explainer{Node: a.Config.NodeName, Inputs: in, Fleet: a.tables.fleet},
	}
	return server.Options{
		Socket: a.Config.Socket, Pods: a.tables.statuses.Pods(), Settled: a.tables.fleet.Settled(),
		Events: a.records.events, Applier: pods,
		Explainer: pods, Checkpoints: local.Checkpoints{CRI: a.machine.engine.Client, RootDir: a.Config.RootDir},
		Objects: local.Objects{Table: a.demand.sources.Objects, Claims: a.steps.claims,
			Local: a.demand.sources.Local},
		Amender: pods, Timelines: a.records.timeline, Streams: streamsOf(a),
		Images: local.Images{Archives: a.machine.engine, Store: a.housekeeping.images, Puller: a.steps.images,
			Pods: a.tables.fleet},
		Files: files.Files{CRI: a.machine.engine.Client, Runtime: a.machine.engine.Name(), ID: stream.ContainerID},
		Info: nodeinfo.Info{Node: a.node(), Resources: a.steps.allocations, Metrics: a.metrics,
			Stats: a.machine.stats},
		LogDir: a.Config.Pods.LogsDir, Started: a.began, Log: a.Log,
	}
}

// problems records an event for each manifest that a source rejects, and when manifests disappear or return.
type problems struct {
	events *event.Recorder
	node   string
}

// noReports drops the problems of manifests, which the next agent reports.
type noReports struct{}

// SourceProblem implements source.Options.Report.
func (noReports) SourceProblem(source.Problem) {}

// SourceResolved implements source.Options.Report.
func (noReports) SourceResolved(source.Problem) {}

// reporter receives each problem of a manifest once.
type reporter interface {
	SourceProblem(source.Problem)
	SourceResolved(source.Problem)
}

func reports(a *Agent) reporter {
	if a.Options.Offline {
		return noReports{}
	}
	return problems{a.records.events, a.Config.NodeName}
}

// SourceProblem records an event on the object of the manifest. Without a name in the manifest there is no object to
// record it on. The event of missing manifests is the node's.
func (p problems) SourceProblem(problem source.Problem) {
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
func (p problems) SourceResolved(problem source.Problem) {
	if missing, ok := errors.AsType[*source.MissingError](problem.Err); ok {
		p.events.Event(event.NodeRef(p.node), corev1.EventTypeNormal, reason.ManifestsReturned,
			"%s is there again: its manifests count", missing.Path)
	}
}
