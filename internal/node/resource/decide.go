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

// TopologyAffinityError is the kubelet's reason for a pod whose resources cannot
// be had as near to each other as the policy wants.
const TopologyAffinityError = "TopologyAffinityError"

// Decide says what a pod is given for itself beside what others hold, and changes
// nothing. Containers are gone through in the order in which they start: what an
// init container was given is given on when it ends, a sidecar keeps its own. An init
// container holds it nevertheless, beside who has it then: it runs again when the
// pod gets another sandbox. A pod that holds something already keeps it as far as
// that is what it asks for, wherever it is. The same input gives the same answer.
//
// The error is a *reason.Error with the kubelet's reason: TopologyAffinityError,
// UnexpectedAdmissionError, SMTAlignmentError or EmptyPodSharedPoolError.
func Decide(n Node, held Held, p *corev1.Pod) (Allocation, error) {
	p = pod.WithoutClaimed(p)
	if _, holds := held[p.UID]; !holds && !n.Policy.CPUs && !n.Policy.Memory && !n.asksForDevices(p) {
		return Allocation{}, nil
	}
	d := newDecision(n, held, p)
	all, staying := n.keeps(p, d.own)
	if all {
		return d.own, nil
	}
	own := d.own
	d.keepWhatIsDue()
	var err error
	switch {
	case staying:
		return d.stay(own), nil
	case !n.aligned() || n.Policy.Topology.Scope != topology.ScopePod:
		err = d.containers(nil)
	case n.bubbles(p):
		err = d.bubble()
	default:
		var hint topology.Hint
		if hint, err = d.merge(d.wholeWishes(),
			podLevelMessage(p,
				"pod with pod-level resources failed admission under pod-scope topology manager")); err == nil {
			err = d.containers(&hint)
		}
	}
	if err != nil {
		return Allocation{}, err
	}
	return d.given, nil
}

// stay is what a pod that runs has from now on. It is not refused for what has
// ended of it.
func (d *decision) stay(own Allocation) Allocation {
	d.staying = true
	if d.containers(&topology.Hint{}) != nil {
		return own
	}
	return d.given
}

// asksForDevices says whether a container asks for something that a plugin serves.
func (n Node) asksForDevices(p *corev1.Pod) bool {
	if len(n.Devices) == 0 {
		return false
	}
	return slices.ContainsFunc(pod.Containers(p), func(c pod.Container) bool {
		return len(n.Devices.Requests(c.Resources.Limits)) > 0
	})
}

// decision is one pod on its way through the allocators.
type decision struct {
	node Node
	pod  *corev1.Pod
	own  Allocation // what the pod holds already

	pool    cpu.Pool
	memory  memory.State // beside other pods
	devices device.Held

	// staying: only init containers lack anything, which have ended.
	staying bool

	given Allocation
	// What init containers leave to those after them.
	cpus  cpuset.CPUSet
	ended []string
	ids   device.Held
}

func newDecision(n Node, held Held, p *corev1.Pod) *decision {
	others := maps.Clone(held)
	delete(others, p.UID)
	d := &decision{
		node: n, pod: p, own: held[p.UID], pool: n.pool(others), memory: n.state(others), devices: others.Devices(),
		given: Allocation{Containers: map[string]Given{}}, cpus: cpuset.New(), ids: device.Held{},
	}
	d.own, _ = n.fitting(others, d.own)
	return d
}

// keepWhatIsDue leaves of what the pod holds what its containers are due, and
// takes that off what there is.
func (d *decision) keepWhatIsDue() {
	own := Allocation{Containers: map[string]Given{}}
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

// aligned says whether the topology is asked.
func (n Node) aligned() bool {
	p := n.Policy.Topology.Policy
	return p != "" && p != topology.None
}

// bubbles says whether a pod is given CPUs and memory as a whole (KEP-5526).
func (n Node) bubbles(p *corev1.Pod) bool {
	return n.aligned() && n.Policy.Topology.Scope == topology.ScopePod && resourcehelper.IsPodLevelResourcesSet(p)
}

// containers goes through all in their order, each on nodes of its own when hint
// is nil.
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
			w.memory = nil // freed when it ended
		}
		at := topology.Hint{}
		switch {
		case hint != nil:
			at = *hint
		case d.node.aligned():
			var err error
			if at, err = d.merge(d.wishes(w),
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

// lend makes what later containers keep reusable by an init container that has
// nothing to run with again, and by no other.
func (d *decision) lend(c pod.Container, later []pod.Container) {
	for _, l := range later {
		kept := d.own.Containers[l.Name]
		if l.Kind == pod.Init || kept.IsEmpty() {
			continue
		}
		may := c.Kind == pod.Init && d.staying
		if may {
			d.cpus = d.cpus.Union(kept.CPUs)
		} else {
			d.cpus = d.cpus.Difference(kept.CPUs)
		}
		for name, ids := range kept.Devices {
			d.reusable(name, ids, may)
		}
	}
}

// reusable says whether containers after this one may be given these devices too.
func (d *decision) reusable(name corev1.ResourceName, ids []device.ID, may bool) {
	if d.ids[name] == nil {
		d.ids[name] = sets.New[device.ID]()
	}
	if may {
		d.ids[name].Insert(ids...)
	} else {
		d.ids[name].Delete(ids...)
	}
}

// want is what one container, or the pod, is due.
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

// without is what is left to be given.
func (w want) without(g Given) want {
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

// keep is what a container holds already and is what it is due.
func (d *decision) keep(c pod.Container, w want) Given {
	g, kept := d.own.Containers[c.Name], Given{}
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

// wishes are those of the devices, CPUs and memory that a container is due.
func (d *decision) wishes(w want) []topology.Wish {
	var wishes []topology.Wish
	for _, name := range slices.Sorted(maps.Keys(w.devices)) {
		r := device.Request{Resource: name, Count: w.devices[name], Reusable: d.ids[name]}
		wishes = append(wishes,
			topology.Wish{Resource: string(name), Hints: device.Hints(d.node.Devices, d.devices, r)})
	}
	if w.cpus > 0 {
		wishes = append(wishes,
			topology.Wish{Resource: string(corev1.ResourceCPU), Hints: cpu.Hints(d.pool, w.cpus, d.cpus)})
	}
	if len(w.memory) > 0 {
		wishes = append(wishes, memory.Wishes(d.taken(), d.request(w))...)
	}
	return wishes
}

func (d *decision) request(w want) memory.Request {
	r := memory.Request{Sizes: w.memory}
	for _, name := range d.ended {
		r.Reusable = append(r.Reusable, d.given.Containers[name].Memory...)
	}
	return r
}

// taken is the memory beside other pods and what this one has been given by now,
// or keeps.
func (d *decision) taken() memory.State {
	s := d.memory
	for name, g := range d.own.Containers {
		if _, given := d.given.Containers[name]; !given {
			s = s.With(g.Memory)
		}
	}
	for _, g := range d.given.Containers {
		s = s.With(g.Memory)
	}
	return s
}

// wholeWishes are those of the pod as a whole.
func (d *decision) wholeWishes() []topology.Wish {
	w := want{devices: d.node.Devices.Requests(resourcehelper.PodLimits(d.pod,
		resourcehelper.PodResourcesOptions{ExcludeOverhead: true}))}
	if d.node.Policy.CPUs {
		w.cpus = cpu.ExclusivePod(d.pod)
	}
	if d.node.Policy.Memory {
		w.memory = memory.Whole(d.pod)
	}
	return d.wishes(w)
}

func podLevelMessage(p *corev1.Pod, text string) string {
	if resourcehelper.IsPodLevelResourcesSet(p) {
		return "Pod Scope " + text
	}
	return "Resources cannot be allocated with Topology locality"
}

// merge finds the nodes, or refuses the pod with this message.
func (d *decision) merge(wishes []topology.Wish, message string) (topology.Hint, error) {
	hint, ok := topology.Merge(d.node.Policy.Topology, d.node.Machine.Nodes, wishes)
	if !ok {
		return topology.Hint{}, reason.New(TopologyAffinityError, "%s", message)
	}
	return hint, nil
}

// container gives one what it is due beside what it keeps.
func (d *decision) container(c pod.Container, w want, kept Given, at topology.Hint) error {
	g := kept
	for _, name := range slices.Sorted(maps.Keys(w.devices)) {
		ids, err := device.Pick(d.node.Devices, d.devices,
			device.Request{Resource: name, Count: w.devices[name], Reusable: d.ids[name]}, at.Nodes)
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
		if c.Kind == pod.Init && d.staying && d.cpus.Size() >= w.cpus {
			pool.Held = pool.Machine.Online() // those of containers that run already are enough
		}
		if g.CPUs, err = cpu.Allocate(pool, w.cpus, d.cpus, at.Nodes); err != nil {
			return err
		}
	}
	if len(w.memory) > 0 {
		if g.Memory, err = memory.Allocate(d.taken(), d.request(w), at); err != nil {
			return err
		}
		d.reuse(g.Memory)
	}
	d.give(c, g)
	return nil
}

// reuse takes off what ended containers hold what one takes over of it.
func (d *decision) reuse(blocks []memory.Block) {
	for _, name := range d.ended {
		before, holds := d.given.Containers[name]
		if !holds {
			continue
		}
		left := memory.Reuse(before.Memory, blocks)
		blocks = memory.Reuse(blocks, before.Memory)
		before.Memory = left
		d.given.Containers[name] = before
	}
}

// give books what a container gets.
func (d *decision) give(c pod.Container, g Given) {
	if !g.IsEmpty() {
		d.given.Containers[c.Name] = g
	}
	d.pool.Held = d.pool.Held.Union(g.CPUs)
	d.cpus = cpu.Reusable(d.cpus, c, g.CPUs)
	for name, ids := range g.Devices {
		if d.devices[name] == nil {
			d.devices[name] = sets.New[device.ID]()
		}
		d.devices[name].Insert(ids...)
		d.reusable(name, ids, c.Kind == pod.Init)
	}
	if c.Kind == pod.Init {
		d.ended = append(d.ended, c.Name)
	}
}

// bubble gives a pod with pod-level resources CPUs and memory of its own and
// divides the CPUs among its containers (KEP-5526). Its devices are its
// containers', near to the same nodes.
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
	at, err := d.merge(d.wholeWishes(),
		podLevelMessage(d.pod, "pod with pod-level resources failed admission under pod-scope topology manager"))
	if err != nil {
		return err
	}
	for _, c := range pod.Containers(d.pod) {
		if c.Kind == pod.Ephemeral {
			continue
		}
		kept := Given{Devices: d.own.Containers[c.Name].Devices}
		w := want{devices: d.node.Devices.Requests(c.Resources.Limits)}
		if err := d.container(c, w.without(kept), kept, at); err != nil {
			return err
		}
	}
	if d.node.Policy.Memory {
		if d.given.Pod.Memory, err = memory.Allocate(d.memory, memory.Request{Sizes: memory.Whole(d.pod)},
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
	d.given.Pod.CPUs = b.CPUs
	for _, c := range pod.Containers(d.pod) {
		// Those that stay and have no CPUs of their own share what is left: nothing
		// is written down for them.
		if b.Exclusive[c.Name] || c.Kind == pod.Init && !b.CPUs.IsEmpty() {
			g := d.given.Containers[c.Name]
			g.CPUs = b.Containers[c.Name]
			d.given.Containers[c.Name] = g
		}
	}
	return nil
}
