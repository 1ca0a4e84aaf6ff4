package placement

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/model/pod"
)

// Rules derive from the ledger where a container should run, and whether it has a CPU quota. They keep nothing.
type Rules struct {
	Ledger ledger
}

// Unthrottled reports whether a container runs without a CPU quota.
func (r Rules) Unthrottled(p *corev1.Pod, c pod.Container) bool {
	a, ok := r.Ledger.Get(p.UID)
	return ok && unthrottled(p, c, a)
}

// PodUnthrottled reports whether a pod's cgroup has no CPU quota.
func (r Rules) PodUnthrottled(p *corev1.Pod) bool {
	a, ok := r.Ledger.Get(p.UID)
	return ok && podUnthrottled(p, a)
}

// Place returns where a container should run, in the format of cpuset.cpus and cpuset.mems. An empty part is not
// restricted.
func (r Rules) Place(p *corev1.Pod, container string) (cpus, mems string) {
	at := r.wanted(p, container)
	return at.cpus, at.mems
}

func (r Rules) wanted(p *corev1.Pod, name string) place {
	a, _ := r.Ledger.Get(p.UID)
	return placeOf(p, name, a, r.Ledger.Shared())
}
