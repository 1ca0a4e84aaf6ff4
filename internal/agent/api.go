package agent

import (
	"github.com/berth-run/berth/internal/agent/explain"
	"github.com/berth-run/berth/internal/agent/input"
	"github.com/berth-run/berth/internal/agent/local"
	"github.com/berth-run/berth/internal/agent/pressure"
	"github.com/berth-run/berth/internal/agent/problem"
	"github.com/berth-run/berth/internal/api/files"
	"github.com/berth-run/berth/internal/api/live"
	"github.com/berth-run/berth/internal/api/nodeinfo"
	"github.com/berth-run/berth/internal/api/past"
	"github.com/berth-run/berth/internal/api/server"
	"github.com/berth-run/berth/internal/api/usage"
)

// node returns the state of this agent for the local API.
func (a *Agent) node() local.Node {
	return local.Node{Name: a.Config.NodeName, Root: a.Config.RootDir, Began: a.began, Engine: a.machine.engine,
		Monitor: a.machine.monitor, Problems: a.demand.sources.Problems, Fleet: a.tables.fleet,
		Conditions: a.tables.conditions,
		Evictions: pressure.View{Memory: a.doors.pressure.evictor, Pods: a.doors.pressure.pods,
			Disk: a.doors.pressure.disk}}
}

func (a *Agent) serverOptions(in input.Node) server.Options {
	pods := local.Pods{
		Node: a.Config.NodeName, Statuses: a.tables.statuses, Sources: a.demand.sources, Fleet: a.tables.fleet,
		Explainer: explain.Explainer{Node: a.Config.NodeName, Inputs: in, Fleet: a.tables.fleet},
	}
	return server.Options{
		Socket: a.Config.Socket, Ready: a.Ready, Pods: a.tables.statuses.Pods(), Settled: a.tables.fleet.Settled(),
		Events: a.records.events, Applier: pods,
		Explainer: pods, Checkpoints: local.Checkpoints{CRI: a.machine.engine.Client, RootDir: a.Config.RootDir},
		Objects: local.Objects{Table: a.demand.sources.Objects, Claims: a.steps.claims,
			Local: a.demand.sources.Local},
		Amender: pods, Streams: streamsOf(a),
		Images: local.Images{Archives: a.machine.engine, Store: a.housekeeping.images, Puller: a.steps.images,
			Pods: a.tables.fleet},
		Files: files.Files{CRI: a.machine.engine.Client, Runtime: a.machine.engine.Name()},
		Info: nodeinfo.Info{Node: a.node(), Resources: a.steps.allocations, Metrics: a.metrics,
			Stats: a.machine.stats, Feed: usage.New(a.machine.stats)},
		Past: past.Past{History: a.records.history, Lifelines: a.records.lifelines, Timelines: a.records.timeline},
		Changes: live.Changes{
			live.Images: {a.housekeeping.images.Changed()}, live.Starts: {a.records.timeline.Changed()},
			live.Topology: {a.steps.allocations.Changed(), a.steps.devices.Supply().Changed()},
		},
		LogDir: a.Config.Pods.LogsDir, Started: a.began, Log: a.Log,
	}
}

func reports(a *Agent) problem.Reporter {
	if a.without.pods {
		return problem.None{}
	}
	return problem.New(a.records.events, a.Config.NodeName)
}
