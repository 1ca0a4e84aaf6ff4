package resource

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/node/resource/cpu"
	"github.com/berth-run/berth/internal/node/resource/device"
	"github.com/berth-run/berth/internal/node/resource/memory"
	"github.com/berth-run/berth/internal/node/resource/topology"
)

// TopologyAffinityError is the kubelet's reason for rejecting a pod whose resources cannot be aligned on NUMA nodes as
// the topology policy requires.
const TopologyAffinityError = "TopologyAffinityError"

// Decide returns the resources that a pod gets exclusively, given the holdings of other pods. It changes nothing, and
// the same input gives the same answer.
//
// It visits containers in their start order. Later containers reuse the resources of an init container once it has
// ended; a sidecar keeps its resources. The init container is still recorded as a holder, because it runs again when
// the pod gets a new sandbox. A pod that already holds resources keeps those that match its requests, whatever their
// NUMA nodes.
//
// The error is a *reason.Error with the kubelet's reason: TopologyAffinityError, UnexpectedAdmissionError,
// SMTAlignmentError or EmptyPodSharedPoolError.
func Decide(n Node, held Held, p *corev1.Pod) (Allocation, error) {
	p, n = pod.WithoutClaimed(p), n.of(p)
	if _, holds := held[p.UID]; !holds && !n.Policy.CPUs && !n.Policy.Memory && !n.asksForDevices(p) {
		return Allocation{}, nil
	}
	d := newDecision(n, held, p)
	complete, lasting := n.covers(p, d.own)
	if complete {
		return d.own, nil
	}
	own := d.own
	d.keepDue()
	var err error
	switch {
	case lasting:
		return d.stay(own), nil
	case !n.aligns() || n.Policy.Topology.Scope != topology.ScopePod:
		err = d.containers(nil)
	case n.usesBubble(p):
		err = d.bubble()
	default:
		var hint topology.Hint
		if hint, err = d.merge(d.podOffers(),
			podLevelMessage(p,
				"pod with pod-level resources failed admission under pod-scope topology manager")); err == nil {
			err = d.containers(&hint)
		}
	}
	if err != nil {
		return Allocation{}, err
	}
	return d.result, nil
}

// stay completes the allocation of a pod whose app containers and sidecars already hold everything. If there is nothing
// free for its init containers, which have ended, the pod keeps its resources and is not rejected.
func (d *decision) stay(own Allocation) Allocation {
	d.onlyInits = true
	if d.containers(&topology.Hint{}) != nil {
		return own
	}
	return d.result
}

// asksForDevices reports whether a container requests a resource that a device plugin serves.
func (n Node) asksForDevices(p *corev1.Pod) bool {
	if len(n.Devices) == 0 {
		return false
	}
	return slices.ContainsFunc(pod.Containers(p), func(c pod.Container) bool {
		return len(n.Devices.Requests(c.Resources.Limits)) > 0
	})
}

// decision is the state of one Decide call.
type decision struct {
	node Node
	pod  *corev1.Pod
	own  Allocation // held by the pod already

	pool    cpu.Pool
	memory  memory.State // not held by other pods
	devices device.Held

	// onlyInits: only init containers, which have ended, lack resources.
	onlyInits bool

	result Allocation
	// Resources that ended init containers leave to the containers after them.
	reusableCPUs    cpuset.CPUSet
	endedInits      []string
	reusableDevices device.Held
}

func newDecision(n Node, held Held, p *corev1.Pod) *decision {
	others := maps.Clone(held)
	delete(others, p.UID)
	d := &decision{
		node: n, pod: p, own: held[p.UID], pool: n.pool(others), memory: n.state(others), devices: others.Devices(),
		result: Allocation{Containers: map[string]Holding{}}, reusableCPUs: cpuset.New(),
		reusableDevices: device.Held{},
	}
	d.own, _ = n.fitting(others, d.own)
	return d
}

// keepDue reduces d.own to the resources that the containers are still due, and marks them as held.
func (d *decision) keepDue() {
	own := Allocation{Containers: map[string]Holding{}}
	for _, c := range pod.Containers(d.pod) {
		if kept := d.keep(c, d.want(c)); !kept.IsEmpty() {
			own.Containers[c.Name] = kept
		}
	}
	d.own = own
	d.pool.Held = d.pool.Held.Union(own.CPUs())
	for name, ids := range (Held{"": own}).Devices() {
		d.devices[name] = ids.Union(d.devices[name])
	}
}

// aligns reports whether the topology policy takes part in the decision.
func (n Node) aligns() bool {
	p := n.Policy.Topology.Policy
	return p != "" && p != topology.None
}

// usesBubble reports whether a pod gets CPUs and memory as a whole (KEP-5526).
func (n Node) usesBubble(p *corev1.Pod) bool {
	return n.aligns() && n.Policy.Topology.Scope == topology.ScopePod && resourcehelper.IsPodLevelResourcesSet(p)
}

// containers allocates for all containers in start order. If hint is nil, each container gets a topology hint of its
// own.
func (d *decision) containers(hint *topology.Hint) error {
	order := pod.Containers(d.pod)
	for i, c := range order {
		if c.Kind == pod.Ephemeral {
			continue
		}
		d.lend(c, order[i+1:])
		kept := d.own.Containers[c.Name]
		w := d.want(c).without(kept)
		if c.Kind == pod.Init && !d.own.IsEmpty() {
			w.memory = nil // its memory was freed when it ended
		}
		at := topology.Hint{}
		switch {
		case hint != nil:
			at = *hint
		case d.node.aligns():
			var err error
			if at, err = d.merge(d.offers(w),
				podLevelMessage(d.pod,
					"pod with pod-level resources failed admission with a container-level "+
						"topology manager")); err != nil {
				return err
			}
		}
		if err := d.container(c, w, kept, at); err != nil {
			return err
		}
	}
	return nil
}

// lend lets an ended init container reuse the resources that later containers hold. Every other container is kept off
// these resources.
func (d *decision) lend(c pod.Container, later []pod.Container) {
	for _, l := range later {
		kept := d.own.Containers[l.Name]
		if l.Kind == pod.Init || kept.IsEmpty() {
			continue
		}
		may := c.Kind == pod.Init && d.onlyInits
		if may {
			d.reusableCPUs = d.reusableCPUs.Union(kept.CPUs)
		} else {
			d.reusableCPUs = d.reusableCPUs.Difference(kept.CPUs)
		}
		for name, ids := range kept.Devices {
			d.setReusable(name, ids, may)
		}
	}
}

// setReusable sets whether the containers after this one may get these devices too.
func (d *decision) setReusable(name corev1.ResourceName, ids []device.ID, may bool) {
	if d.reusableDevices[name] == nil {
		d.reusableDevices[name] = sets.New[device.ID]()
	}
	if may {
		d.reusableDevices[name].Insert(ids...)
	} else {
		d.reusableDevices[name].Delete(ids...)
	}
}

// want lists the resources that one container, or a whole pod, must get.
type want struct {
	cpus    int
	memory  map[corev1.ResourceName]int64
	devices map[corev1.ResourceName]int
}

func (d *decision) want(c pod.Container) want {
	w := want{devices: d.node.Devices.Requests(c.Resources.Limits)}
	if d.node.Policy.CPUs {
		w.cpus = cpu.Exclusive(d.pod, c.Container)
	}
	if d.node.Policy.Memory {
		w.memory = memory.Exclusive(d.pod, c.Container)
	}
	return w
}

// without removes the kinds of resources that are held already.
func (w want) without(g Holding) want {
	if !g.CPUs.IsEmpty() {
		w.cpus = 0
	}
	if len(g.Memory) > 0 {
		w.memory = nil
	}
	if len(g.Devices) > 0 {
		w.devices = maps.Clone(w.devices)
		maps.DeleteFunc(w.devices, func(name corev1.ResourceName, _ int) bool { return len(g.Devices[name]) > 0 })
	}
	return w
}

// keep returns the part of a container's holding that matches the resources it is due.
func (d *decision) keep(c pod.Container, w want) Holding {
	g, kept := d.own.Containers[c.Name], Holding{}
	if g.CPUs.Size() == w.cpus && w.cpus > 0 {
		kept.CPUs = g.CPUs
	}
	if len(g.Memory) == len(w.memory) && !slices.ContainsFunc(g.Memory, func(b memory.Block) bool {
		return b.Size != w.memory[b.Resource] && (c.Kind != pod.Init || b.Size > w.memory[b.Resource])
	}) {
		kept.Memory = g.Memory
	}
	for name, ids := range g.Devices {
		if _, served := d.node.Devices[name]; served && len(ids) != w.devices[name] {
			continue
		}
		if kept.Devices == nil {
			kept.Devices = map[corev1.ResourceName][]device.ID{}
		}
		kept.Devices[name] = ids
	}
	return kept
}

// offers lists the offers of the device, CPU and memory allocators for w.
func (d *decision) offers(w want) []topology.Offer {
	var offers []topology.Offer
	for _, name := range slices.Sorted(maps.Keys(w.devices)) {
		r := device.Request{Resource: name, Count: w.devices[name], Reusable: d.reusableDevices[name]}
		offers = append(offers,
			topology.Offer{Resource: string(name), Hints: device.Hints(d.node.Devices, d.devices, r)})
	}
	if w.cpus > 0 {
		offers = append(offers,
			topology.Offer{Resource: string(corev1.ResourceCPU), Hints: cpu.Hints(d.pool, w.cpus, d.reusableCPUs)})
	}
	if len(w.memory) > 0 {
		offers = append(offers, memory.Offers(d.memoryInUse(), d.request(w))...)
	}
	return offers
}

func (d *decision) request(w want) memory.Request {
	r := memory.Request{Sizes: w.memory}
	for _, name := range d.endedInits {
		r.Reusable = append(r.Reusable, d.result.Containers[name].Memory...)
	}
	return r
}

// memoryInUse is the memory state after other pods and after everything that this pod keeps or got so far.
func (d *decision) memoryInUse() memory.State {
	s := d.memory
	for name, g := range d.own.Containers {
		if _, decided := d.result.Containers[name]; !decided {
			s = s.With(g.Memory)
		}
	}
	for _, g := range d.result.Containers {
		s = s.With(g.Memory)
	}
	return s
}

// podOffers lists the offers of the allocators for the pod as a whole.
func (d *decision) podOffers() []topology.Offer {
	w := want{devices: d.node.Devices.Requests(resourcehelper.PodLimits(d.pod,
		resourcehelper.PodResourcesOptions{ExcludeOverhead: true}))}
	if d.node.Policy.CPUs {
		w.cpus = cpu.ExclusivePod(d.pod)
	}
	if d.node.Policy.Memory {
		w.memory = memory.ExclusivePod(d.pod)
	}
	return d.offers(w)
}

func podLevelMessage(p *corev1.Pod, text string) string {
	if resourcehelper.IsPodLevelResourcesSet(p) {
		return "Pod Scope " + text
	}
	return "Resources cannot be allocated with Topology locality"
}

// merge chooses the NUMA nodes. If the policy allows none, it rejects the pod with this message.
func (d *decision) merge(offers []topology.Offer, message string) (topology.Hint, error) {
	hint, ok := topology.Merge(d.node.Policy.Topology, d.node.Machine.Nodes, offers)
	if !ok {
		return topology.Hint{}, reason.New(TopologyAffinityError, "%s", message)
	}
	return hint, nil
}

// container allocates the resources that one container is due in addition to kept.
func (d *decision) container(c pod.Container, w want, kept Holding, at topology.Hint) error {
	g := kept
	for _, name := range slices.Sorted(maps.Keys(w.devices)) {
		ids, err := device.Pick(d.node.Devices, d.devices,
			device.Request{Resource: name, Count: w.devices[name], Reusable: d.reusableDevices[name]}, at.Nodes)
		if err != nil {
			return err
		}
		if g.Devices = maps.Clone(g.Devices); g.Devices == nil {
			g.Devices = map[corev1.ResourceName][]device.ID{}
		}
		g.Devices[name] = ids
	}
	var err error
	if w.cpus > 0 {
		pool := d.pool
		if c.Kind == pod.Init && d.onlyInits && d.reusableCPUs.Size() >= w.cpus {
			pool.Held = pool.Machine.Online() // The CPUs of running containers suffice.
		}
		if g.CPUs, err = cpu.Allocate(pool, w.cpus, d.reusableCPUs, at.Nodes); err != nil {
			return err
		}
	}
	if len(w.memory) > 0 {
		if g.Memory, err = memory.Allocate(d.memoryInUse(), d.request(w), at); err != nil {
			return err
		}
		d.reuse(g.Memory)
	}
	d.give(c, g)
	return nil
}

// reuse removes from the records of ended init containers the memory that a later container reuses.
func (d *decision) reuse(blocks []memory.Block) {
	for _, name := range d.endedInits {
		before, holds := d.result.Containers[name]
		if !holds {
			continue
		}
		left := memory.Reuse(before.Memory, blocks)
		blocks = memory.Reuse(blocks, before.Memory)
		before.Memory = left
		d.result.Containers[name] = before
	}
}

// give records the resources that a container gets, and the part that later containers may reuse.
func (d *decision) give(c pod.Container, g Holding) {
	if !g.IsEmpty() {
		d.result.Containers[c.Name] = g
	}
	d.pool.Held = d.pool.Held.Union(g.CPUs)
	d.reusableCPUs = cpu.Reusable(d.reusableCPUs, c, g.CPUs)
	for name, ids := range g.Devices {
		if d.devices[name] == nil {
			d.devices[name] = sets.New[device.ID]()
		}
		d.devices[name].Insert(ids...)
		d.setReusable(name, ids, c.Kind == pod.Init)
	}
	if c.Kind == pod.Init {
		d.endedInits = append(d.endedInits, c.Name)
	}
}

// bubble allocates CPUs and memory for a pod with pod-level resources as a whole, and divides the CPUs among its
// containers (KEP-5526). Each container gets its own devices, close to the same NUMA nodes.
func (d *decision) bubble() error {
	if d.node.Policy.CPUs {
		if err := cpu.CheckBubble(d.pod); err != nil {
			return err
		}
	}
	if d.node.Policy.Memory {
		if err := memory.CheckBubble(d.pod); err != nil {
			return err
		}
	}
	at, err := d.merge(d.podOffers(),
		podLevelMessage(d.pod, "pod with pod-level resources failed admission under pod-scope topology manager"))
	if err != nil {
		return err
	}
	for _, c := range pod.Containers(d.pod) {
		if c.Kind == pod.Ephemeral {
			continue
		}
		kept := Holding{Devices: d.own.Containers[c.Name].Devices}
		w := want{devices: d.node.Devices.Requests(c.Resources.Limits)}
		if err := d.container(c, w.without(kept), kept, at); err != nil {
			return err
		}
	}
	if d.node.Policy.Memory {
		if d.result.Pod.Memory, err = memory.Allocate(d.memory, memory.Request{Sizes: memory.ExclusivePod(d.pod)},
			at); err != nil {
			return err
		}
	}
	if !d.node.Policy.CPUs {
		return nil
	}
	b, err := cpu.AllocateBubble(d.pool, d.pod, at.Nodes)
	if err != nil {
		return err
	}
	d.result.Pod.CPUs = b.CPUs
	for _, c := range pod.Containers(d.pod) {
		// Containers that stay without exclusive CPUs share the rest of the pod's CPUs and need no record.
		if b.Exclusive[c.Name] || c.Kind == pod.Init && !b.CPUs.IsEmpty() {
			g := d.result.Containers[c.Name]
			g.CPUs = b.Containers[c.Name]
			d.result.Containers[c.Name] = g
		}
	}
	return nil
}
