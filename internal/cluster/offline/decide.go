package offline

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-run/berth/internal/cluster/token"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/pod"
)

// AnnotationAlways marks a pod, with the value "true", that is always saved, whatever the configuration says. Its
// saved copy never becomes too old.
const AnnotationAlways = "node.kubernetes.io/bootstrap-checkpoint"

// Kept is a saved pod with all that it needs to start.
type Kept struct {
	Pod     *corev1.Pod
	Objects []object.Value
	Sets    Sets
	// Tokens are the pod's service account tokens, by the request of its volume.
	Tokens map[string]token.Token
}

// Sets are the objects for a pod that are not in the table of objects. A pod lists no service or trust bundle by
// name, so all that it may use are saved. Drivers are the CSI drivers of its volumes.
type Sets struct {
	Services []*corev1.Service                         `json:"services,omitempty"`
	Bundles  []*certificatesv1beta1.ClusterTrustBundle `json:"clusterTrustBundles,omitempty"`
	Drivers  []*storagev1.CSIDriver                    `json:"csiDrivers,omitempty"`
}

// Always reports whether a pod is always saved.
func Always(p *corev1.Pod) bool { return p.Annotations[AnnotationAlways] == "true" }

// wanted reports whether to save a pod: it comes from the API server, has not ended, and is not being deleted.
func wanted(p *pod.Pod, all bool) bool {
	switch {
	case p.Source != pod.SourceAPI, p.DeletionTimestamp != nil, pod.Ended(p.Status.Phase):
		return false
	}
	return all || Always(p.Pod)
}

// bare returns a pod without its momentary state. It keeps the ResourceClaims that were created for it, because only
// the status has their names.
func bare(p *corev1.Pod) *corev1.Pod {
	b := *p
	b.ResourceVersion, b.ManagedFields = "", nil
	b.Status = corev1.PodStatus{ResourceClaimStatuses: p.Status.ResourceClaimStatuses,
		ExtendedResourceClaimStatus: p.Status.ExtendedResourceClaimStatus}
	return &b
}

// stamp identifies a version of a pod and of every object it uses. It is empty if a version is unknown. The pod's own
// version changes with its status too, which is not saved.
func stamp(k Kept) string {
	var b strings.Builder
	all := []metav1.Object{k.Pod}
	for _, v := range k.Objects {
		all = append(all, v)
	}
	for _, s := range k.Sets.Services {
		all = append(all, s)
	}
	for _, s := range k.Sets.Bundles {
		all = append(all, s)
	}
	for _, s := range k.Sets.Drivers {
		all = append(all, s)
	}
	for _, v := range all {
		if v.GetResourceVersion() == "" {
			return ""
		}
		fmt.Fprintf(&b, "%s/%s %s ", v.GetNamespace(), v.GetName(), v.GetResourceVersion())
	}
	for _, name := range slices.Sorted(maps.Keys(k.Tokens)) {
		fmt.Fprintf(&b, "%s %d ", name, k.Tokens[name].Expires.UnixNano())
	}
	return b.String()
}

// startable returns the pods that may start at now, if the API server last answered at confirmed. If that is longer
// ago than age, only pods that are always saved may start. Age 0 sets no limit.
func startable(kept []Kept, confirmed, now time.Time, age time.Duration) []Kept {
	if age <= 0 || now.Sub(confirmed) <= age {
		return kept
	}
	return slices.DeleteFunc(slices.Clone(kept), func(k Kept) bool { return !Always(k.Pod) })
}

// confirmInterval returns how often to note that the API server has answered. An error of a tenth of the age is
// acceptable.
func confirmInterval(age time.Duration) time.Duration {
	return min(max(age/10, 10*time.Second), 10*time.Minute)
}

// objectMeta drops the metadata that no reader on the node needs. It keeps the owners: a pod uses a claim that was
// created for it only if it owns the claim.
func objectMeta(v object.Value) object.Value {
	c := v.DeepCopyObject().(object.Value)
	c.SetManagedFields(nil)
	if a := c.GetAnnotations(); a != nil {
		delete(a, corev1.LastAppliedConfigAnnotation)
	}
	return c
}
