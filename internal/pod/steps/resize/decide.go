package resize

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/model/pod"
)

// Sizes are the resources of a pod's containers by name.
type Sizes map[string]corev1.ResourceRequirements

// sizesOf reads them from a spec. Ephemeral containers have none.
func sizesOf(p *corev1.Pod) Sizes {
	all := Sizes{}
	for _, c := range pod.Containers(p) {
		if c.Kind != pod.Ephemeral {
			all[c.Name] = c.Resources
		}
	}
	return all
}

// sized is the pod with the CPU and memory of these sizes; the same pointer when
// that changes nothing. A container without a size keeps its own.
func sized(p *pod.Pod, sizes Sizes) *pod.Pod {
	if same(sizesOf(p.Pod), sizes) {
		return p
	}
	c := *p
	c.Pod = p.DeepCopy()
	for _, list := range [][]corev1.Container{c.Spec.InitContainers, c.Spec.Containers} {
		for i := range list {
			if r, ok := sizes[list[i].Name]; ok {
				list[i].Resources.Requests = merged(list[i].Resources.Requests, r.Requests)
				list[i].Resources.Limits = merged(list[i].Resources.Limits, r.Limits)
			}
		}
	}
	return &c
}

// merged takes CPU and memory from now and the rest from was.
func merged(was, now corev1.ResourceList) corev1.ResourceList {
	all := maps.Clone(was)
	for _, name := range resizable() {
		delete(all, name)
		if q, ok := now[name]; ok {
			if all == nil {
				all = corev1.ResourceList{}
			}
			all[name] = q.DeepCopy()
		}
	}
	return all
}

func resizable() []corev1.ResourceName {
	return []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}
}

// same says whether no container of both has another CPU or memory.
func same(a, b Sizes) bool {
	for name := range a {
		if other, ok := b[name]; ok && len(changes(a[name], other)) > 0 {
			return false
		}
	}
	return true
}

// changes lists which of CPU and memory differ, in requests or limits.
func changes(was, now corev1.ResourceRequirements) (names []corev1.ResourceName) {
	for _, name := range resizable() {
		if differs(was.Requests, now.Requests, name) || differs(was.Limits, now.Limits, name) {
			names = append(names, name)
		}
	}
	return names
}

func differs(a, b corev1.ResourceList, name corev1.ResourceName) bool {
	x, inA := a[name]
	y, inB := b[name]
	return inA != inB || x.Cmp(y) != 0
}

// Reasons of PodResizePending; an answer without one allocates.
const (
	deferred   = corev1.PodReasonDeferred
	infeasible = corev1.PodReasonInfeasible
)

// question is all that the answer to a resize depends on.
type question struct {
	was, want *corev1.Pod
	// fixed is why the pod's resources cannot change while it runs; "" when they can.
	fixed string
	// alone and beside are why want does not fit on the node: when it is empty,
	// and beside what other pods have; "" when it fits.
	alone, beside string
	// swap says that containers of this node may have swap (KEP-2400).
	swap bool
}

// answer is what becomes of a resize. detail is the reason of what is infeasible, as
// it is counted.
type answer struct{ reason, message, detail string }

// Details of what is infeasible. The first two are the kubelet's for the same; it
// does not count the others.
const (
	swapLimits  = "swap_limitation"
	staticShare = "guaranteed_pod_cpu_manager_static_policy"
	staticNodes = "guaranteed_pod_memory_manager_static_policy"
	otherClass  = "qos_class"
	tooLarge    = "node_allocatable"
)

// retried is the trigger of each try of a resize that was deferred: a pod is looked
// at again as a whole, whatever has changed on the node.
const retried = "periodic_retry"

// decide says whether a pod gets what it wants. What can never be is Infeasible,
// what only other pods hold up is Deferred.
func decide(q question) answer {
	if q.swap && pod.QOS(q.want) == corev1.PodQOSBurstable {
		was := sizesOf(q.was)
		for _, c := range pod.Containers(q.want) {
			memory := differs(was[c.Name].Requests, c.Resources.Requests, corev1.ResourceMemory)
			if c.Kind != pod.Ephemeral && memory && !restarts(c, []corev1.ResourceName{corev1.ResourceMemory}) {
				return answer{infeasible,
					fmt.Sprintf(
						"the memory request of container %q cannot change without a restart: its swap follows it",
						c.Name), swapLimits}
			}
		}
	}
	switch before, after := pod.QOS(q.was), pod.QOS(q.want); {
	case before != after:
		return answer{infeasible,
			fmt.Sprintf("the pod would be %s and is %s: its QoS class cannot change while it runs", after, before),
			otherClass}
	case q.fixed != "":
		return answer{infeasible, q.fixed, staticDetail(q)}
	case q.alone != "":
		return answer{infeasible, q.alone, tooLarge}
	case q.beside != "":
		return answer{reason: deferred, message: q.beside}
	}
	return answer{}
}

// staticDetail is which of the static policies keeps a pod's resources as they are.
func staticDetail(q question) string {
	was := sizesOf(q.was)
	for name, now := range sizesOf(q.want) {
		if slices.Contains(changes(was[name], now), corev1.ResourceCPU) {
			return staticShare
		}
	}
	return staticNodes
}

// restarts says whether a container has to restart for a change of these.
func restarts(c pod.Container, changed []corev1.ResourceName) bool {
	return slices.ContainsFunc(c.ResizePolicy, func(p corev1.ContainerResizePolicy) bool {
		return p.RestartPolicy == corev1.RestartContainer && slices.Contains(changed, p.ResourceName)
	})
}

// given is what the newest instance of a container has.
type given struct {
	ID        string                      `json:"id"`
	Resources corev1.ResourceRequirements `json:"resources"`
	// Restart says that it is to restart for other resources.
	Restart bool `json:"restart,omitempty"`
}

// work is what brings a pod from what was actuated to what is allocated.
type work struct {
	updates []update
	// restarts names containers that are to restart and are not marked yet.
	restarts []string
	// awaited says that marked containers were not replaced yet.
	awaited bool
}

// idle says that nothing is to be done now.
func (w work) idle() bool { return len(w.updates) == 0 && len(w.restarts) == 0 }

// update is a running container that gets other resources.
type update struct {
	id        string
	container pod.Container
	// known says that was is what the container has.
	known bool
	was   corev1.ResourceRequirements
}

// difference computes the work. actuated is by container name; an instance of
// which nothing is known is updated, which changes nothing if it has what it is
// to have.
func difference(p *corev1.Pod, o *pod.Observed, actuated map[string]given) work {
	var w work
	for _, c := range pod.Containers(p) {
		s, ok := o.Container(c.Name)
		if c.Kind == pod.Ephemeral || !ok {
			continue
		}
		g := actuated[c.Name]
		known := g.ID == s.ID
		changed := changes(g.Resources, c.Resources)
		switch {
		case known && g.Restart:
			w.awaited = true
		case s.State != pod.StateRunning, known && len(changed) == 0:
		case known && c.Kind != pod.Init && restarts(c, changed):
			w.restarts = append(w.restarts, c.Name)
		default:
			w.updates = append(w.updates, update{id: s.ID, container: c, known: known, was: g.Resources})
		}
	}
	return w
}

// less says whether an update takes memory away from a container that has a
// limit now or gets one.
func (u update) less() bool {
	limit, limited := u.container.Resources.Limits[corev1.ResourceMemory]
	was, wasLimited := u.was.Limits[corev1.ResourceMemory]
	return limited && u.known && (!wasLimited || limit.Cmp(was) < 0)
}
