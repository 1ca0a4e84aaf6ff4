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

// AnnotationAlways marks a pod, with the value "true", that is kept whatever the
// configuration says of others, and without an age at which it is too old.
const AnnotationAlways = "node.kubernetes.io/bootstrap-checkpoint"

// Kept is a pod with all that it needs to start.
type Kept struct {
	Pod     *corev1.Pod
	Objects []object.Value
	Sets    Sets
	// Tokens are those of the pod's service account, by what the volume asks for.
	Tokens map[string]token.Token
}

// Sets are the objects that are in no table of objects: those of which a pod names not
// one but all, and those of the drivers of its volumes.
type Sets struct {
	Services []*corev1.Service                         `json:"services,omitempty"`
	Bundles  []*certificatesv1beta1.ClusterTrustBundle `json:"clusterTrustBundles,omitempty"`
	Drivers  []*storagev1.CSIDriver                    `json:"csiDrivers,omitempty"`
}

// Always says that a pod is kept in any case.
func Always(p *corev1.Pod) bool { return p.Annotations[AnnotationAlways] == "true" }

// wanted says that a pod is worth keeping: it is the API server's, and has not
// ended or been told to.
func wanted(p *pod.Pod, all bool) bool {
	switch {
	case p.Source != pod.SourceAPI, p.DeletionTimestamp != nil:
		return false
	case p.Status.Phase == corev1.PodSucceeded, p.Status.Phase == corev1.PodFailed:
		return false
	}
	return all || Always(p.Pod)
}

// bare is a pod without what only says how it was at one moment. Which ResourceClaims
// were made for it stays: its status alone has their names.
func bare(p *corev1.Pod) *corev1.Pod {
	b := *p
	b.ResourceVersion, b.ManagedFields = "", nil
	b.Status = corev1.PodStatus{ResourceClaimStatuses: p.Status.ResourceClaimStatuses,
		ExtendedResourceClaimStatus: p.Status.ExtendedResourceClaimStatus}
	return &b
}

// stamp is another one when anything about a pod and what it needs is, as far as the
// API server tells by their versions; empty if it does not tell. The pod's own
// version changes with its status too, which is not kept.
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

// fresh are the pods that may be started at now, when the API server was last
// heard at confirmed: after age only those that are kept always; age 0 is no limit.
func fresh(kept []Kept, confirmed, now time.Time, age time.Duration) []Kept {
	if age <= 0 || now.Sub(confirmed) <= age {
		return kept
	}
	return slices.DeleteFunc(slices.Clone(kept), func(k Kept) bool { return !Always(k.Pod) })
}

// later is when to note again that the API server was heard, for an age of which
// an error of a tenth does not matter.
func later(age time.Duration) time.Duration {
	return min(max(age/10, 10*time.Second), 10*time.Minute)
}

// objectMeta drops what an object carries for others than its readers. Whose it is
// stays: a pod uses a claim that was made for it only if it is its own.
func objectMeta(v object.Value) object.Value {
	c := v.DeepCopyObject().(object.Value)
	c.SetManagedFields(nil)
	if a := c.GetAnnotations(); a != nil {
		delete(a, corev1.LastAppliedConfigAnnotation)
	}
	return c
}
