package fleet

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/model/pod"
)

// Roll knows the pods that concern this node: the pods that a source wants, and the members of the fleet.
type Roll struct {
	Desired *store.Table[types.UID, *pod.Pod]
	Fleet   *Fleet
}

// Known reports whether a source wants a pod or the fleet still has it, for example while it ends.
func (r Roll) Known(uid types.UID) bool {
	if _, wanted := r.Desired.Get(uid); wanted {
		return true
	}
	_, here := r.Fleet.Member(uid)
	return here
}

// Working reports whether a pod has a worker.
func (r Roll) Working(uid types.UID) bool { return r.Fleet.Working(uid) }
