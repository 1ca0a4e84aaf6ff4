package admission

import (
	"cmp"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/reason"
)

// checkTopology asks the allocators whether the pod can get CPUs, memory of NUMA nodes and devices for itself, aligned
// as the policies demand. A resource that the node lacks as a whole is left to checkResources.
func checkTopology(in In) Answer {
	if in.Allot == nil {
		return Answer{}
	}
	var all, staying []types.UID
	var ending []PodInfo
	for o := range in.others() {
		all = append(all, o.Pod.UID)
		if o.Terminating {
			ending = append(ending, o)
		} else {
			staying = append(staying, o.Pod.UID)
		}
	}
	_, err := in.Allot(all)
	if err == nil || checkResources(in).Verdict != Admitted {
		return Answer{}
	}
	if len(ending) > 0 {
		if _, later := in.Allot(staying); later == nil {
			return notYet(allotReason(err), ending, "%s", reason.Message(err))
		}
	}
	return reject(allotReason(err), "%s", reason.Message(err))
}

// allotReason returns the kubelet's reason for a failed allocation.
func allotReason(err error) string { return cmp.Or(reason.Of(err), UnexpectedAdmissionError) }
