package mirror

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/retry"
	"github.com/berth-run/berth/internal/model/pod"
)

// annotationResources holds a digest of the resources that the copy was created with. A static pod keeps its hash if
// only the resources in its manifest change.
const annotationResources = "berth.run/mirror-resources"

// act is the next action for a name.
type act int

const (
	nothing act = iota
	create
	remove
)

// decide returns the next action for a name, given its static pod and the mirror pod that the API server has. Either
// may be nil.
func decide(static *pod.Pod, mirror *corev1.Pod) act {
	switch {
	case static == nil && mirror == nil:
		return nothing
	case static == nil:
		return remove
	case mirror == nil:
		return create
	case mirror.DeletionTimestamp == nil && current(static, mirror):
		return nothing
	}
	return remove
}

// of reports whether a mirror pod is the copy of this static pod, possibly with earlier resources.
func of(static *pod.Pod, mirror *corev1.Pod) bool {
	hash, ok := mirror.Annotations[pod.AnnotationMirror]
	return ok && hash == static.Annotations[pod.AnnotationConfigHash]
}

// current reports whether a mirror pod is an up-to-date copy of this static pod. A copy made by a kubelet has no
// digest of its resources.
func current(static *pod.Pod, mirror *corev1.Pod) bool {
	sum, ok := mirror.Annotations[annotationResources]
	return of(static, mirror) && (!ok || sum == resources(static.Pod))
}

// mirrorable reports whether a pod gets a copy. A node may create copies only for pods of manifests.
func mirrorable(p *pod.Pod) bool {
	return p != nil && (p.Source == pod.SourceFile || p.Source == pod.SourceURL)
}

// copyOf returns the mirror pod of a static pod. It omits the fields that the API server sets itself and refuses from
// a client: the priority and the overhead that come from a class, and ephemeral containers.
func copyOf(static *pod.Pod, node string, nodeUID types.UID) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: static.Namespace, Name: static.Name,
			Labels: maps.Clone(static.Labels), Annotations: maps.Clone(static.Annotations),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node, UID: nodeUID,
				Controller: new(true)}},
		},
		Spec: *static.Spec.DeepCopy(),
	}
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	p.Annotations[pod.AnnotationMirror] = static.Annotations[pod.AnnotationConfigHash]
	p.Annotations[annotationResources] = resources(static.Pod)
	p.Spec.NodeName = node
	p.Spec.EphemeralContainers = nil
	p.Spec.Priority = nil
	p.Spec.ServiceAccountName, p.Spec.DeprecatedServiceAccount = "", "" // "default", which stands for none here
	if p.Spec.RuntimeClassName != nil {
		p.Spec.Overhead = nil
	}
	return p
}

// resources returns a digest of the resources of the pod's containers.
func resources(p *corev1.Pod) string {
	var all []corev1.ResourceRequirements
	for _, c := range pod.Containers(p) {
		if c.Kind != pod.Ephemeral {
			all = append(all, c.Resources)
		}
	}
	text, _ := json.Marshal(all) // names and quantities always encode
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// Delays between tries.
const (
	// pause follows the creation of a mirror pod. It limits the load if somebody deletes or changes the copy again
	// and again.
	pause = time.Second
	// retryFirst doubles with each failure, up to retryMax.
	retryFirst, retryMax = 200 * time.Millisecond, 30 * time.Second
	// retryRefused follows a refusal: only another manifest, or a change in the cluster, can help.
	retryRefused = 2 * time.Minute
	// unregistered is the delay until the next try if the node has no object yet.
	unregistered = 100 * time.Millisecond
)

// delay returns how long to wait after a number of failures in a row, the last of them err.
func delay(failures int, err error) time.Duration {
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
		return retryRefused
	}
	return retry.Delay(retryFirst, retryMax, failures)
}
