package content

import (
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/source/manifest"
)

// static completes a pod of a file or URL as the kubelet does. The pod gets a UID from its content and place, and the
// node's name after its own. A pod from a file also gets a toleration that keeps it when the node has problems. o must
// not be used afterwards.
func static(o manifest.Object, from pod.Source, node string) (*pod.Pod, error) {
	p := o.Pod
	strip(p)
	if p.UID == "" {
		place := []string{"url:" + o.Origin}
		if from == pod.SourceFile {
			place = []string{"host:" + node, "file:" + o.Origin}
		}
		p.UID = types.UID(Hash(o.Canonical, place...))
	}
	if p.Name != "" {
		p.Name += "-" + strings.ToLower(node)
	}
	if from == pod.SourceFile {
		tolerateNoExecute(p)
	}
	return complete(o, from, node, string(p.UID))
}

// Local completes a pod that the agent's API received. It keeps its name. Its UID is empty unless the manifest has one:
// Local decides whether the pod exists already.
func Local(o manifest.Object, node string) (*pod.Pod, error) {
	strip(o.Pod)
	if name := o.Pod.Spec.NodeName; name != "" && name != node {
		return nil, Invalid(o, fmt.Errorf("spec.nodeName: Invalid value: %q: this node is %q", name, node))
	}
	return complete(o, pod.SourceLocal, node, Hash(o.Canonical))
}

// Complete returns the pod that a manifest would give if it were applied. o must not be used afterwards. The UID is
// empty unless the manifest has one.
func Complete(o manifest.Object, node string) (*pod.Pod, error) { return Local(o, node) }

// complete does the part that all sources share.
func complete(o manifest.Object, from pod.Source, node, hash string) (*pod.Pod, error) {
	p := o.Pod
	if p.Namespace == "" {
		p.Namespace = metav1.NamespaceDefault
	}
	p.Spec.NodeName = node
	Annotate(p, pod.AnnotationConfigHash, hash)
	Annotate(p, pod.AnnotationConfigSource, string(from))
	manifest.Default(p)
	p.Status.Phase = corev1.PodPending
	if err := manifest.Invalid(manifest.Validate(p)); err != nil {
		return nil, Invalid(o, err)
	}
	return &pod.Pod{Pod: p, Source: from, Origin: o.Origin}, nil
}

// Invalid returns the error for an invalid object, with its position in the manifest.
func Invalid(o manifest.Object, err error) error {
	return reason.Wrap(reason.FailedValidation, o.Fail(err))
}

// strip removes metadata that an object exported from an API server carries. The API server itself ignores these fields
// at creation.
func strip(o metav1.Object) {
	o.SetResourceVersion("")
	o.SetGeneration(0)
	o.SetCreationTimestamp(metav1.Time{})
	o.SetDeletionTimestamp(nil)
	o.SetDeletionGracePeriodSeconds(nil)
	o.SetManagedFields(nil)
	o.SetOwnerReferences(nil)
	o.SetFinalizers(nil)
	for _, key := range []string{pod.AnnotationConfigHash, pod.AnnotationConfigSource, pod.AnnotationConfigSeen,
		pod.AnnotationMirror} {
		delete(o.GetAnnotations(), key)
	}
}

// Annotate sets an annotation of a pod.
func Annotate(p *corev1.Pod, key, value string) {
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	p.Annotations[key] = value
}

func tolerateNoExecute(p *corev1.Pod) {
	all := corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
	if !slices.ContainsFunc(p.Spec.Tolerations, func(t corev1.Toleration) bool {
		return equality.Semantic.DeepEqual(t, all)
	}) {
		p.Spec.Tolerations = append(p.Spec.Tolerations, all)
	}
}

// Hash returns a 128-bit FNV-1a hash in hex, like the kubelet's UIDs of static pods. It covers the manifest's
// text and not the completed pod: an upgrade with another default must not restart every pod.
func Hash(canonical []byte, place ...string) string {
	h := fnv.New128a()
	h.Write(canonical)
	for _, p := range place {
		h.Write([]byte(p))
	}
	return hex.EncodeToString(h.Sum(nil))
}
