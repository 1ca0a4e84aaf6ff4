package resize

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/model/pod"
)

// Sizes holds the resources of a pod's containers by container name, and the pod-level ones under Whole.
type Sizes map[string]corev1.ResourceRequirements

// Whole is the key of the pod-level resources in Sizes (KEP-5419). No container has this name.
const Whole = ""

// sizesOf reads the sizes from a spec. Ephemeral containers have none.
func sizesOf(p *corev1.Pod) Sizes {
	all := Sizes{Whole: {}}
	if p.Spec.Resources != nil {
		all[Whole] = *p.Spec.Resources
	}
	for _, c := range pod.Containers(p) {
		if c.Kind != pod.Ephemeral {
			all[c.Name] = c.Resources
		}
	}
	return all
}

// sized returns the pod with the CPU and memory of sizes. It returns the same pointer if they are equal. A container
// that is not in sizes keeps its resources.
func sized(p *pod.Pod, sizes Sizes) *pod.Pod {
	if same(sizesOf(p.Pod), sizes) {
		return p
	}
	c := *p
	c.Pod = p.DeepCopy()
	if r, ok := sizes[Whole]; ok {
		c.Spec.Resources = podLevel(c.Spec.Resources, r)
	}
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

// podLevel returns pod-level resources with the CPU and memory of now. It returns nil if nothing is left.
func podLevel(was *corev1.ResourceRequirements, now corev1.ResourceRequirements) *corev1.ResourceRequirements {
	var r corev1.ResourceRequirements
	if was != nil {
		r = *was
	}
	r.Requests, r.Limits = merged(r.Requests, now.Requests), merged(r.Limits, now.Limits)
	if len(r.Requests)+len(r.Limits)+len(r.Claims) == 0 {
		return nil
	}
	return &r
}

// merged returns was with the CPU and memory of now.
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

// same reports whether CPU and memory are equal for all keys that are in both.
func same(a, b Sizes) bool {
	for name := range a {
		if other, ok := b[name]; ok && len(changes(a[name], other)) > 0 {
			return false
		}
	}
	return true
}

// changes lists which of CPU and memory differ in requests or limits.
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

// Reasons of the condition PodResizePending. An answer without a reason allocates the resize.
const (
	deferred   = corev1.PodReasonDeferred
	infeasible = corev1.PodReasonInfeasible
)

// question holds everything that the answer to a resize depends on.
type question struct {
	was, want *corev1.Pod
	// fixed is why the pod's resources cannot change while it runs, "" if they can.
	fixed string
	// alone is why want does not fit on the empty node. beside is why it does not fit beside the other pods. Both are
	// "" if it fits.
	alone, beside string
	// swap is set if containers of this node may use swap (KEP-2400).
	swap bool
	// podFixed is set if pod-level resources cannot be resized on this node.
	podFixed bool
}

// answer is the result for a resize. detail is the metric label of an infeasible resize.
type answer struct{ reason, message, detail string }

// Details of infeasible resizes: the kubelet's labels.
const (
	swapLimits  = "swap_limitation"
	podGateOff  = "plr_feature_gate_off"
	staticShare = "guaranteed_pod_cpu_manager_static_policy"
	staticNodes = "guaranteed_pod_memory_manager_static_policy"
)

// retried is the label for the trigger of a retry. A deferred resize is retried together with its whole pod, whatever
// has changed on the node.
const retried = "periodic_retry"

// decide returns whether a pod gets the resources it wants. As in the kubelet, the answer is Infeasible if the
// configuration of this node forbids the change. It is Deferred if the pod does not fit, even if it would not fit on an
// empty node.
func decide(q question) answer {
	if q.swap && pod.QOS(q.want) == corev1.PodQOSBurstable {
		was := sizesOf(q.was)
		for _, c := range pod.Containers(q.want) {
			memory := differs(was[c.Name].Requests, c.Resources.Requests, corev1.ResourceMemory)
			if c.Kind != pod.Ephemeral && memory && !restarts(c, []corev1.ResourceName{corev1.ResourceMemory}) {
				return answer{infeasible,
					fmt.Sprintf(
						"the memory request of container %q cannot change without a restart: its swap limit "+
							"depends on it",
						c.Name), swapLimits}
			}
		}
	}
	if q.podFixed && len(changes(sizesOf(q.was)[Whole], sizesOf(q.want)[Whole])) > 0 {
		return answer{infeasible, "InPlacePodLevelResourcesVerticalScaling is disabled", podGateOff}
	}
	switch before, after := pod.QOS(q.was), pod.QOS(q.want); {
	case before != after:
		return answer{reason: deferred, message: fmt.Sprintf(
			"the pod would be %s and is %s: its QoS class cannot change while it runs", after, before)}
	case q.fixed != "":
		return answer{infeasible, q.fixed, staticDetail(q)}
	case q.alone != "":
		return answer{reason: deferred, message: q.alone}
	case q.beside != "":
		return answer{reason: deferred, message: q.beside}
	}
	return answer{}
}

// staticDetail returns which static policy prevents a change of the pod's resources.
func staticDetail(q question) string {
	was := sizesOf(q.was)
	for name, now := range sizesOf(q.want) {
		if slices.Contains(changes(was[name], now), corev1.ResourceCPU) {
			return staticShare
		}
	}
	return staticNodes
}

// restarts reports whether a container must restart to change these resources.
func restarts(c pod.Container, changed []corev1.ResourceName) bool {
	return slices.ContainsFunc(c.ResizePolicy, func(p corev1.ContainerResizePolicy) bool {
		return p.RestartPolicy == corev1.RestartContainer && slices.Contains(changed, p.ResourceName)
	})
}

// given holds the resources of the newest instance of a container.
type given struct {
	ID        string                      `json:"id"`
	Resources corev1.ResourceRequirements `json:"resources"`
	// Bounds are the pod's limits at that time, which apply to a container without its own limits. It is nil in the
	// records of older agents.
	Bounds corev1.ResourceList `json:"bounds"`
	// Restart is set if the instance must restart to get other resources.
	Restart bool `json:"restart,omitempty"`
	// Replaced is the instance that had Restart last. If it is the newest one that the plan sees, it must restart
	// still.
	Replaced string `json:"replaced,omitempty"`
}

// giving returns the record of a container instance with the resources that the pod's spec gives it.
func giving(p *corev1.Pod, c pod.Container, id string) given {
	g := given{ID: id, Resources: c.Resources, Bounds: corev1.ResourceList{}}
	if p.Spec.Resources == nil {
		return g
	}
	for _, name := range resizable() {
		if q, ok := p.Spec.Resources.Limits[name]; ok {
			g.Bounds[name] = q
		}
	}
	return g
}

// effective returns the resources with the pod's limits where the container has none (KEP-2837). The limits of p
// replace unknown bounds, so that a record of an older agent is no reason for a restart.
func (g given) effective(p *corev1.Pod) corev1.ResourceRequirements {
	if g.Bounds == nil {
		g.Bounds = giving(p, pod.Container{Container: &corev1.Container{}}, "").Bounds
	}
	r := corev1.ResourceRequirements{Requests: g.Resources.Requests, Limits: maps.Clone(g.Resources.Limits)}
	for name, q := range g.Bounds {
		if own := r.Limits[name]; own.IsZero() {
			if r.Limits == nil {
				r.Limits = corev1.ResourceList{}
			}
			r.Limits[name] = q
		}
	}
	return r
}

// work lists the actions that bring a pod from its actuated to its allocated resources.
type work struct {
	updates []update
	// restarts has the ids of instances that must restart and are not marked yet, by container name.
	restarts map[string]string
	// awaited is set if a marked container has not been replaced yet.
	awaited bool
}

// idle reports whether there is nothing to do now.
func (w work) idle() bool { return len(w.updates) == 0 && len(w.restarts) == 0 }

// update changes the resources of a running container.
type update struct {
	id        string
	container pod.Container
	// known is set if was holds the container's present resources.
	known bool
	// was and want include the pod's limits, where the container has none.
	was, want corev1.ResourceRequirements
}

// difference computes the work. actuated is by container name. An instance with unknown resources is updated: an update
// with its present values is harmless. Init containers that are no sidecars are left alone if initFixed is set.
func difference(p *corev1.Pod, o *pod.Observed, actuated map[string]given, initFixed bool) work {
	w := work{restarts: map[string]string{}}
	newest := o.Newest()
	for _, c := range pod.Containers(p) {
		s, ok := newest[c.Name]
		if c.Kind == pod.Ephemeral || !ok || c.Kind == pod.Init && initFixed {
			continue
		}
		g := actuated[c.Name]
		known := g.ID == s.ID
		was, want := g.effective(p), giving(p, c, s.ID).effective(p)
		changed := changes(was, want)
		switch {
		case known && g.Restart:
			w.awaited = true
		case s.State != pod.StateRunning, known && len(changed) == 0:
		case known && c.Kind != pod.Init && restarts(c, changed):
			w.restarts[c.Name] = s.ID
		default:
			w.updates = append(w.updates, update{id: s.ID, container: c, known: known, was: was, want: want})
		}
	}
	return w
}

// less reports whether an update sets a memory limit that is lower than the present one, or the first one.
func (u update) less() bool {
	limit, limited := u.want.Limits[corev1.ResourceMemory]
	was, wasLimited := u.was.Limits[corev1.ResourceMemory]
	return limited && u.known && (!wasLimited || limit.Cmp(was) < 0)
}
