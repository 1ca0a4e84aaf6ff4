package source

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/source/identity"
)

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
