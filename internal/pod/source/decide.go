package source

import (
	"cmp"
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
	"github.com/berth-run/berth/internal/pod/source/identity"
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
		p.UID = types.UID(contentHash(o.Canonical, place...))
	}
	if p.Name != "" {
		p.Name += "-" + strings.ToLower(node)
	}
	if from == pod.SourceFile {
		tolerateNoExecute(p)
	}
	return complete(o, from, node, string(p.UID))
}

// local completes a pod that the agent's API received. It keeps its name. Its UID is empty unless the manifest has one:
// Local decides whether the pod exists already.
func local(o manifest.Object, node string) (*pod.Pod, error) {
	strip(o.Pod)
	if name := o.Pod.Spec.NodeName; name != "" && name != node {
		return nil, invalid(o, fmt.Errorf("spec.nodeName: Invalid value: %q: this node is %q", name, node))
	}
	return complete(o, pod.SourceLocal, node, contentHash(o.Canonical))
}

// Complete returns the pod that a manifest would give if it were applied. o must not be used afterwards. The UID is
// empty unless the manifest has one.
func Complete(o manifest.Object, node string) (*pod.Pod, error) { return local(o, node) }

// complete does the part that all sources share.
func complete(o manifest.Object, from pod.Source, node, hash string) (*pod.Pod, error) {
	p := o.Pod
	if p.Namespace == "" {
		p.Namespace = metav1.NamespaceDefault
	}
	p.Spec.NodeName = node
	annotate(p, pod.AnnotationConfigHash, hash)
	annotate(p, pod.AnnotationConfigSource, string(from))
	manifest.Default(p)
	p.Status.Phase = corev1.PodPending
	if err := manifest.Invalid(manifest.Validate(p)); err != nil {
		return nil, invalid(o, err)
	}
	return &pod.Pod{Pod: p, Source: from, Origin: o.Origin}, nil
}

func invalid(o manifest.Object, err error) error {
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

func annotate(p *corev1.Pod, key, value string) {
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

// contentHash returns a 128-bit FNV-1a hash in hex, like the kubelet's UIDs of static pods. It covers the manifest's
// text and not the completed pod: an upgrade with another default must not restart every pod.
func contentHash(canonical []byte, place ...string) string {
	h := fnv.New128a()
	h.Write(canonical)
	for _, p := range place {
		h.Write([]byte(p))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// wanted holds the pods and objects that an origin wants on this node.
type wanted struct {
	pods    []*pod.Pod
	objects []*item
}

func (w wanted) empty() bool { return len(w.pods)+len(w.objects) == 0 }

// keep returns what a manifest stands for after a change. A manifest without faults stands for its content. One with
// faults may be half written, so what its earlier version gave stays unless a good document replaces it.
func keep(last, good wanted, faulty bool) wanted {
	if !faulty {
		return good
	}
	return wanted{
		pods:    kept(last.pods, good.pods, func(a, b *pod.Pod) bool { return a.Key() == b.Key() }),
		objects: kept(last.objects, good.objects, func(a, b *item) bool { return a.key() == b.key() }),
	}
}

func kept[T any](last, good []T, same func(a, b T) bool) []T {
	all := slices.Clone(good)
	for _, l := range last {
		if !slices.ContainsFunc(good, func(g T) bool { return same(g, l) }) {
			all = append(all, l)
		}
	}
	return all
}

// claim is a pod or object that an origin wants, with its place in the order of claims.
type claim[T any] struct {
	want  T
	order uint64 // when its origin first wanted this name; claims of the cluster come last
	index int    // within its origin
}

func sortClaims[T any](claims []claim[T]) {
	slices.SortFunc(claims, func(a, b claim[T]) int {
		return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.index, b.index))
	})
}

// resolve gives each name and each UID to its first claim. The other claims are problems until the first is gone. The
// winners are in the order of their claims.
func resolve(claims []claim[*pod.Pod]) ([]*pod.Pod, []Problem) {
	sortClaims(claims)
	byName := map[types.NamespacedName]*pod.Pod{}
	byUID := map[types.UID]*pod.Pod{}
	var winners []*pod.Pod
	var problems []Problem
	for _, c := range claims {
		if first, taken := byName[c.want.Key()]; taken {
			problems = append(problems,
				refuse(c.want, "%s: pod %s is already defined by %s: rename it, or remove one of the two",
					c.want.Origin,
					c.want.Key(), first.Origin))
			continue
		}
		if first, taken := byUID[c.want.UID]; taken {
			problems = append(problems,
				refuse(c.want, "%s: pod %s has the UID %s of pod %s (%s): remove metadata.uid", c.want.Origin,
					c.want.Key(), c.want.UID, first.Key(), first.Origin))
			continue
		}
		byName[c.want.Key()] = c.want
		byUID[c.want.UID] = c.want
		winners = append(winners, c.want)
	}
	return winners, problems
}

func refuse(p *pod.Pod, format string, args ...any) Problem {
	return Problem{Origin: p.Origin, Pod: p.Key(), Err: reason.New(reason.FailedValidation, format, args...)}
}

// inPlace reports whether a running pod can change from was to now without a replacement. Only fields may differ that
// the API server lets change: labels, annotations, images, deadline, tolerations, ephemeral containers, and CPU and
// memory of containers if the QoS class stays.
func inPlace(was, now *corev1.Pod) bool {
	old := was.Spec.DeepCopy()
	old.ActiveDeadlineSeconds = now.Spec.ActiveDeadlineSeconds
	old.Tolerations = now.Spec.Tolerations
	old.EphemeralContainers = now.Spec.EphemeralContainers
	takeChangeable(old.InitContainers, now.Spec.InitContainers)
	takeChangeable(old.Containers, now.Spec.Containers)
	return equality.Semantic.DeepEqual(old, &now.Spec) && pod.QOS(was) == pod.QOS(now)
}

// takeChangeable copies the changeable fields. The pull policy is one of them because its default depends on the
// image's tag.
func takeChangeable(old, now []corev1.Container) {
	for i := range min(len(old), len(now)) {
		old[i].Image, old[i].ImagePullPolicy = now[i].Image, now[i].ImagePullPolicy
		if equality.Semantic.DeepEqual(identity.Unsized(old[i].Resources), identity.Unsized(now[i].Resources)) {
			old[i].Resources = now[i].Resources
		}
	}
}

// takeEphemeral copies the ephemeral containers that were added to a running pod. Manifests cannot have any.
func takeEphemeral(was, now *corev1.Pod) {
	for _, e := range was.Spec.EphemeralContainers {
		if _, named := pod.FindContainer(now, e.Name); !named {
			now.Spec.EphemeralContainers = append(now.Spec.EphemeralContainers, e)
		}
	}
}

// same reports whether two pods with the same UID are equal in everything else.
func same(a, b *pod.Pod) bool {
	return a.Source == b.Source && a.Origin == b.Origin && a.Ephemeral == b.Ephemeral &&
		equality.Semantic.DeepEqual(a.Pod, b.Pod)
}
