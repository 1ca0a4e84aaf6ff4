package source

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/source/cluster"
	"github.com/berth-run/berth/internal/pod/source/content"
	"github.com/berth-run/berth/internal/pod/source/contest"
	"github.com/berth-run/berth/internal/pod/source/identity"
)

// refusal is the problem of a pod whose name or UID another pod has.
func refusal(l contest.Loss[slot, *pod.Pod]) Problem {
	p, first := l.Value, l.Winner
	why := reason.New(reason.FailedValidation,
		"%s: pod %s is already defined by %s: rename it, or remove one of the two", p.Origin, p.Key(), first.Origin)
	if l.Key.uid != "" {
		why = reason.New(reason.FailedValidation, "%s: pod %s has the UID %s of pod %s (%s): remove metadata.uid",
			p.Origin, p.Key(), p.UID, first.Key(), first.Origin)
	}
	return Problem{Origin: p.Origin, Pod: p.Key(), Err: why}
}

// objectRefusal is the problem of an object whose name another one has.
func objectRefusal(l contest.Loss[slot, *content.Item]) Problem {
	i, key := l.Value, l.Value.Key()
	why := reason.New(reason.FailedValidation, "%s: %s is already defined by %s: rename it, or remove one of the two",
		i.Origin, key, l.Winner.Origin)
	if l.Winner.Origin == cluster.Origin {
		why = reason.New(reason.FailedValidation,
			"%s: %s exists in the cluster too, whose object is used: rename it, or remove one of the two", i.Origin,
			key)
	}
	return Problem{Origin: i.Origin, Err: why}.About(key)
}

// inPlace reports whether a running pod can change from was to now without a replacement. Only fields may differ that
// the API server lets change: labels, annotations, images, deadline, tolerations, ephemeral containers, and CPU and
// memory of containers and of the pod as a whole if the QoS class stays.
func inPlace(was, now *corev1.Pod) bool {
	old := was.Spec.DeepCopy()
	old.ActiveDeadlineSeconds = now.Spec.ActiveDeadlineSeconds
	old.Tolerations = now.Spec.Tolerations
	old.EphemeralContainers = now.Spec.EphemeralContainers
	rest, other := old.DeepCopy(), now.Spec.DeepCopy()
	identity.UnsizePod(rest)
	identity.UnsizePod(other)
	if equality.Semantic.DeepEqual(rest.Resources, other.Resources) {
		old.Resources = now.Spec.Resources
	}
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
