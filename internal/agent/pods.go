package agent

import (
	"slices"

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
	"github.com/berth-run/berth/internal/pod/steps/volume/emptydir"
	"github.com/berth-run/berth/internal/pod/steps/volume/payload"
	"github.com/berth-run/berth/internal/pod/worker"
)

// steps are the parts of this node that a pod's life is made of.
type steps struct {
	dirs        *poddir.Dirs
	allocations *allocation.Allocations // what pods hold for themselves
	cgroups     *cgroup.Cgroups
	images      *image.Images
	volumes     *volume.Volumes
	claims      *claim.Claims // what claims of volumes are bound to
	limits      *emptydir.Limits
	contents    *payload.Volumes // what objects' volumes hold
	devices     *device.Devices
	sandboxes   *sandbox.Sandboxes
	resizes     *resize.Resizes
	placements  *placement.Placements // which CPUs containers run on
	drift       *drift.Watch          // what others change of cgroups
	contained   *drift.Containers     // the same of those of containers
	containers  *container.Containers
	probes      *probe.Probes
}

// list is a pod's life, top to bottom. Each step names what it waits for, so
// that independent work overlaps; ending a pod goes back up.
// more are steps that only a node of a cluster has: the sandbox waits for them.
func (s steps) list(more ...worker.Step) []worker.Step {
	sandbox := s.sandboxes.Step()
	for _, step := range more {
		sandbox.After = append(sandbox.After, step.Name)
	}
	return slices.Concat([]worker.Step{
		s.dirs.Step(),        // its directories
		s.cgroups.Step(),     // its cgroup
		s.images.Step(),      // all its images at once; nothing waits here, each container waits for its own
		s.volumes.Step(),     // its volumes
		s.devices.Step(),     // its devices; each container waits for its own
		s.allocations.Step(), // what it holds for itself of the node, until nothing of it runs
	}, more, []worker.Step{
		sandbox,             // its sandbox and network
		s.resizes.Step(),    // what its running containers and its cgroup may use
		s.containers.Step(), // its containers: stopped, removed and started as the plan says
		s.probes.Step(),     // the probes of those that run
	})
}

// lifecycle is who takes part in the life of each container, in this order.
func (s steps) lifecycle(hooks *hook.Hooks) []container.Lifecycle {
	return []container.Lifecycle{
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
