package agent

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/placement"
	"github.com/berth-run/berth/internal/resource"
)

// holdings are what pods hold of the node's CPUs and memory.
type holdings interface {
	Get(types.UID) (resource.Allocation, bool)
	Shared() cpuset.CPUSet
}

// newPlacements makes the part that carries out what the ledger says.
func newPlacements(a *Agent, held holdings, changed <-chan struct{}) *placement.Placements {
	return placement.New(placement.Options{
		Ledger: held, Changed: changed, Runtime: a.engine.client.Runtime, Cgroups: a.steps.cgroups,
		Observed: a.pleg.Table(),
		Pod: func(uid types.UID) (*corev1.Pod, bool) {
			m, ok := a.fleet.Member(uid)
			if !ok {
				return nil, false
			}
			return m.Pod.Pod, true
		},
		Log: a.log,
	})
}
