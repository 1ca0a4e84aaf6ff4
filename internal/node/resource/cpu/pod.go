package cpu

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/node/resource/topology"
)

// Exclusive returns the number of exclusive CPUs that a container is due. 0 means that it runs on shared CPUs. A
// container of a Guaranteed pod is due its CPU request if that is a whole number. In a pod with pod-level resources
// (KEP-5526), its own requests and limits for CPU and memory must also be set and equal.
func Exclusive(p *corev1.Pod, c *corev1.Container) int {
	if pod.QOS(p) != corev1.PodQOSGuaranteed {
		return 0
	}
	if PodLevel(p) && (!equal(c, corev1.ResourceCPU) || !equal(c, corev1.ResourceMemory)) {
		return 0
	}
	return whole(c.Resources.Requests)
}

// ExclusivePod returns the number of exclusive CPUs that a pod is due as a whole, for topology scope pod. This is the
// pod-level request if there is one and it is a whole number. Otherwise it is the most that its containers are due at
// the same time, reusing the CPUs of init containers.
func ExclusivePod(p *corev1.Pod) int {
	if PodLevel(p) {
		if pod.QOS(p) != corev1.PodQOSGuaranteed {
			return 0
		}
		return whole(p.Spec.Resources.Requests)
	}
	most, sidecars, apps := 0, 0, 0
	for _, c := range pod.Containers(p) {
		switch n := Exclusive(p, c.Container); c.Kind {
		case pod.Sidecar:
			sidecars += n
		case pod.Init:
			most = max(most, sidecars+n)
		case pod.App:
			apps += n
		case pod.Ephemeral: // has no resources
		}
	}
	return max(most, sidecars+apps)
}

// PodLevel reports whether a pod has resources of its own (KEP-2837). A node without the feature gate
// PodLevelResourceManagers gives such a pod no exclusive CPUs.
func PodLevel(p *corev1.Pod) bool { return resource.IsPodLevelResourcesSet(p) }

func equal(c *corev1.Container, name corev1.ResourceName) bool {
	request, limit := c.Resources.Requests[name], c.Resources.Limits[name]
	return !request.IsZero() && request.Equal(limit)
}

func whole(requests corev1.ResourceList) int {
	q := requests[corev1.ResourceCPU]
	if q.MilliValue()%1000 != 0 {
		return 0
	}
	return int(q.Value())
}

// Reusable returns the CPUs that the containers after c may get too, once c has been given some. An init container ends
// before the next container starts, so its CPUs stay reusable until a lasting container gets them. Start with the empty
// set and visit init and app containers in order.
func Reusable(before cpuset.CPUSet, c pod.Container, given cpuset.CPUSet) cpuset.CPUSet {
	if c.Kind == pod.Init {
		return before.Union(given)
	}
	return before.Difference(given)
}

// Bubble holds the exclusive CPUs of a pod with pod-level resources under topology scope pod (KEP-5526), divided among
// its containers.
type Bubble struct {
	CPUs cpuset.CPUSet
	// Containers has the CPUs of each init and app container. A container that is due exclusive CPUs has these CPUs;
	// every other container runs on the pod's shared CPUs. An init container without exclusive CPUs runs on all CPUs
	// that no earlier sidecar holds.
	Containers map[string]cpuset.CPUSet
	// Exclusive names the containers that are due exclusive CPUs.
	Exclusive map[string]bool
	// Shared are the CPUs of the lasting containers without exclusive CPUs.
	Shared cpuset.CPUSet
}

// AllocateBubble chooses CPUs for the pod as Allocate does for a container, and divides them among its containers. A
// pod that is due none gets the zero Bubble. The error's reason is EmptyPodSharedPoolError (see CheckBubble) or one of
// Allocate's.
func AllocateBubble(pool Pool, p *corev1.Pod, on topology.Nodes) (Bubble, error) {
	n := ExclusivePod(p)
	if n == 0 || !PodLevel(p) {
		return Bubble{}, nil
	}
	if err := CheckBubble(p); err != nil {
		return Bubble{}, err
	}
	cpus, err := Allocate(pool, n, cpuset.New(), on)
	if err != nil {
		return Bubble{}, err
	}
	return divide(pool, p, cpus)
}

func divide(pool Pool, p *corev1.Pod, cpus cpuset.CPUSet) (Bubble, error) {
	l := newLayout(pool.Machine)
	// The pod holds whole cores. Inside the pod, two containers may share a core.
	rules := l.rules(pool.Options).split()
	b := Bubble{CPUs: cpus, Containers: map[string]cpuset.CPUSet{}, Exclusive: map[string]bool{}, Shared: cpus}
	var sharing []string
	for _, c := range pod.Containers(p) {
		n := Exclusive(p, c.Container)
		switch {
		case c.Kind == pod.Ephemeral:
		case n == 0 && c.Kind == pod.Init:
			b.Containers[c.Name] = b.Shared
		case n == 0:
			sharing = append(sharing, c.Name)
		default:
			own, err := l.take(rules, l.places(b.Shared), n)
			if err != nil {
				return Bubble{},
					reason.New(UnexpectedAdmissionError, "Allocate failed due to container %q: %w, which is unexpected",
						c.Name, err)
			}
			b.Containers[c.Name], b.Exclusive[c.Name] = l.set(own), true
			if c.Kind != pod.Init {
				b.Shared = b.Shared.Difference(l.set(own))
			}
		}
	}
	for _, name := range sharing {
		b.Containers[name] = b.Shared
	}
	return b, nil
}

// CheckBubble rejects a pod whose exclusive containers leave no CPU of the pod for a container that shares the pod's
// CPUs. The reason is EmptyPodSharedPoolError.
func CheckBubble(p *corev1.Pod) error {
	n := ExclusivePod(p)
	if n == 0 || !PodLevel(p) {
		return nil
	}
	staying, sharing := 0, false
	for _, c := range pod.Containers(p) {
		due := Exclusive(p, c.Container)
		switch {
		case c.Kind == pod.Ephemeral:
		case c.Kind == pod.Init:
			if due == 0 && staying >= n {
				return reason.New(EmptyPodSharedPoolError,
					"pod rejected, pod has shared init containers but no cpus available for them")
			}
		case due == 0:
			sharing = true
		default:
			staying += due
		}
	}
	if sharing && staying >= n {
		return reason.New(EmptyPodSharedPoolError,
			"pod rejected, sum of exclusive container cpu requests equals pod budget, leaving no cpus for "+
				"shared containers")
	}
	return nil
}
