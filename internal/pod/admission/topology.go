package admission

import (
	"cmp"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/reason"
)

// checkTopology asks whether the pod can be given what is to be its own: CPUs,
// memory of NUMA nodes and devices, aligned as the policies want. What the node
// lacks as a whole is the business of the rule of resources.
func checkTopology(in In) Answer {
	if in.Allot == nil {
		return Answer{}
	}
	var all, staying []types.UID
	var ending []PodInfo
	for _, o := range in.others() {
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

// allotReason is the kubelet's word for why a pod cannot be given what is to be
// its own.
func allotReason(err error) string { return cmp.Or(reason.Of(err), UnexpectedAdmissionError) }
