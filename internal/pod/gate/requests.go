package gate

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/pod/admission"
)

// requests holds what pods request, by UID. To compute it takes more time than the rest of most answers, so it is
// computed once for each version of a pod, and not for each pod that is admitted beside it.
type requests map[types.UID]request

// request belongs to one version of a pod.
type request struct {
	of *corev1.Pod
	is admission.Requests
}

// fill sets the requests of pods.
func (r requests) fill(pods []admission.PodInfo) {
	for i := range pods {
		o := &pods[i]
		known, ok := r[o.Pod.UID]
		if !ok || known.of != o.Pod {
			known = request{of: o.Pod, is: admission.RequestsOf(o.Pod)}
			r[o.Pod.UID] = known
		}
		o.Requests = known.is
	}
	// There may be none for a question about the node alone.
	if len(pods) > 0 && len(r) > 2*len(pods) {
		r.keep(pods)
	}
}

// keep drops all pods but these.
func (r requests) keep(pods []admission.PodInfo) {
	kept := make(requests, len(pods))
	for _, o := range pods {
		kept[o.Pod.UID] = r[o.Pod.UID]
	}
	clear(r)
	maps.Copy(r, kept)
}
