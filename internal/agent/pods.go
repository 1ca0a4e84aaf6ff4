package agent

import (
	"slices"

	"github.com/berth-run/berth/internal/agent/input"
	"github.com/berth-run/berth/internal/node/drift"
	"github.com/berth-run/berth/internal/pod/gate"
	"github.com/berth-run/berth/internal/pod/steps/allocation"
	"github.com/berth-run/berth/internal/pod/steps/cgroup"
	"github.com/berth-run/berth/internal/pod/steps/claim"
	"github.com/berth-run/berth/internal/pod/steps/container"
	"github.com/berth-run/berth/internal/pod/steps/device"
	"github.com/berth-run/berth/internal/pod/steps/hook"
	"github.com/berth-run/berth/internal/pod/steps/image"
	"github.com/berth-run/berth/internal/pod/steps/placement"
	"github.com/berth-run/berth/internal/pod/steps/poddir"
	"github.com/berth-run/berth/internal/pod/steps/probe"
	"github.com/berth-run/berth/internal/pod/steps/resize"
	"github.com/berth-run/berth/internal/pod/steps/sandbox"
	"github.com/berth-run/berth/internal/pod/steps/volume"
	"github.com/berth-run/berth/internal/pod/steps/volume/payload"
	"github.com/berth-run/berth/internal/pod/worker"
)

// steps holds the parts of this node that carry out the steps of a pod's life.
type steps struct {
	dirs        *poddir.Dirs
	allocations *allocation.Allocations // the CPUs, memory and devices that belong to one pod alone
	cgroups     *cgroup.Cgroups
	images      *image.Images
	volumes     *volume.Volumes
	claims      *claim.Claims    // which volume each claim is bound to
	contents    *payload.Volumes // the files of ConfigMap, Secret and similar volumes
	devices     *device.Devices
	sandboxes   *sandbox.Sandboxes
	resizes     *resize.Resizes
	placements  *placement.Placements // the CPUs that containers run on
	drift       *drift.Watch          // changes of pod cgroups by other programs
	contained   *drift.Containers     // changes of container cgroups by other programs
	containers  *container.Containers
	probes      *probe.Probes
}

// list returns the steps of a pod's life, top to bottom. Each step names the steps it waits for, so that independent
// work overlaps. Ending a pod runs the steps in reverse. more are the steps that only a node of a cluster has. The
// sandbox waits for them.
func (s steps) list(more ...worker.Step) []worker.Step {
	sandbox := s.sandboxes.Step()
	for _, step := range more {
		sandbox.After = append(sandbox.After, step.Name)
	}
	return slices.Concat([]worker.Step{
		s.dirs.Step(),        // its directories
		s.cgroups.Step(),     // its cgroup
		s.images.Step(),      // all its images at once; only the containers wait, each for its own image
		s.volumes.Step(),     // its volumes
		s.devices.Step(),     // its devices; each container waits for its own devices
		s.allocations.Step(), // its own CPUs, memory and devices, until nothing of it runs
	}, more, []worker.Step{
		sandbox,             // its sandbox and network
		s.resizes.Step(),    // the resource limits of its running containers and its cgroup
		s.containers.Step(), // its containers: stopped, removed and started as the plan says
		s.probes.Step(),     // the probes of its running containers
	})
}

// lifecycle returns the parts whose functions run before a container is created, before it starts and around its stop,
// in this order.
func (s steps) lifecycle(hooks *hook.Hooks, node input.Node) []container.Lifecycle {
	return []container.Lifecycle{
		{PreCreate: node.PreCreate},
		{PreCreate: hooks.PreCreate, PreStart: hooks.PreStart, PreStop: hooks.PreStop, PostStop: hooks.PostStop},
		{PreStart: s.resizes.PreStart},
		{PreStart: s.allocations.PreStart},
		{PreCreate: s.placements.PreCreate, PreStart: s.placements.PreStart, PostStop: s.placements.PostStop},
		{PreCreate: s.devices.PreCreate, PreStart: s.devices.PreStart},
	}
}

// Steps lists the steps for printing.
func Steps() []worker.Step {
	return steps{
		dirs: &poddir.Dirs{}, allocations: &allocation.Allocations{}, cgroups: &cgroup.Cgroups{},
		images: &image.Images{}, volumes: &volume.Volumes{}, devices: &device.Devices{},
		sandboxes: &sandbox.Sandboxes{}, resizes: &resize.Resizes{}, containers: &container.Containers{},
		probes: &probe.Probes{},
	}.list()
}

// AdmissionStages lists the stages of a pod's admission for printing.
func AdmissionStages() []gate.Stage { return (&gate.Gate{}).Stages() }
