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

	"github.com/berth-run/berth/internal/model/pod"
)

// annotationResources is a digest of the resources that the copy was made with. A
// static pod keeps its hash when nothing else of its manifest is edited.
const annotationResources = "berth.run/mirror-resources"

// act is what is to be done about a name.
type act int

const (
	nothing act = iota
	create
	remove
)

// decide says what is to be done, given the static pod of a name and the mirror
// pod that the API server has. Either may be nil.
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

// of says whether a mirror pod is the copy of this static pod, maybe of an earlier
// edit of its resources.
func of(static *pod.Pod, mirror *corev1.Pod) bool {
	hash, ok := mirror.Annotations[pod.AnnotationMirror]
	return ok && hash == static.Annotations[pod.AnnotationConfigHash]
}

// current says whether a mirror pod is the copy of this static pod as it is now.
// One that a kubelet has made does not tell its resources.
func current(static *pod.Pod, mirror *corev1.Pod) bool {
	sum, ok := mirror.Annotations[annotationResources]
	return of(static, mirror) && (!ok || sum == resources(static.Pod))
}

// mirrorable says whether the API server gets a copy: a node may only write those
// of manifests.
func mirrorable(p *pod.Pod) bool {
	return p != nil && (p.Source == pod.SourceFile || p.Source == pod.SourceURL)
}

// copyOf is the mirror pod of a static pod. It leaves out what the API server adds
// itself, and refuses to be told: the priority and the overhead that a class stands
// for, and ephemeral containers.
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

// resources is a digest of the resources of the pod's containers.
func resources(p *corev1.Pod) string {
	var all []corev1.ResourceRequirements
	for _, c := range pod.Containers(p) {
		if c.Kind != pod.Ephemeral {
			all = append(all, c.Resources)
		}
	}
	text, _ := json.Marshal(all) // quantities and names
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// Delays between tries.
const (
	// pause is after a mirror pod was made: who deletes or changes it again and again
	// does not make this node as busy as itself.
	pause = time.Second
	// retryFirst doubles with each failure, up to retryMax.
	retryFirst, retryMax = 200 * time.Millisecond, 30 * time.Second
	// retryRefused is for what the API server does not allow: another manifest, or
	// another cluster, is needed.
	retryRefused = 2 * time.Minute
	// unregistered is how soon to look again for a node that has no object yet.
	unregistered = 100 * time.Millisecond
)

// delay is how long to wait after so many failures in a row, the last of them err.
func delay(failures int, err error) time.Duration {
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
		return retryRefused
	}
	return min(retryMax, retryFirst<<min(failures-1, 10))
}
