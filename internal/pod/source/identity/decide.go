package identity

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/model/pod"
)

// Identity is what is remembered of the pod of a manifest in a file or at a URL,
// so that it is the same pod after an edit of its CPU and memory, also when the
// agent did not run meanwhile.
type Identity struct {
	// UID that the pod has. Content is the one that its text gives.
	UID     types.UID `json:"uid"`
	Content types.UID `json:"content"`
	// Shape is a digest of all of the pod that cannot change while it runs.
	Shape string `json:"shape"`
	// Amended is what was changed over the agent's API.
	Amended *amendment `json:"amended,omitempty"`
}

// amendment changes the pod of a manifest that is not the agent's to write.
type amendment struct {
	// Base are the manifest's resources. When it says something else, that counts.
	Base      string                                 `json:"base"`
	Resources map[string]corev1.ResourceRequirements `json:"resources,omitempty"`
	Ephemeral []corev1.EphemeralContainer            `json:"ephemeral,omitempty"`
}

// recognize says who the pod of a manifest is, given who was at its place.
func recognize(was Identity, p *pod.Pod) Identity {
	shape := shapeOf(p.Pod)
	same := was.Shape == shape && hashed(was.Content) && hashed(p.UID)
	if was.UID == "" || was.Content != p.UID && !same {
		return Identity{UID: p.UID, Content: p.UID, Shape: shape}
	}
	now := Identity{UID: was.UID, Content: p.UID, Shape: shape, Amended: was.Amended}
	if a := was.Amended; a != nil && a.Resources != nil && a.Base != Resources(p.Pod) {
		now.Amended = nil
		if len(a.Ephemeral) > 0 {
			now.Amended = &amendment{Ephemeral: a.Ephemeral}
		}
	}
	return now
}

// adopt makes the pod that runs the one at a place, where a manifest leaves open who
// it is. One that the manifest does not stand for any more stays another one.
func adopt(was, now Identity, runs types.UID) Identity {
	if !hashed(now.Content) || runs == was.UID || runs == now.UID {
		return now
	}
	return Identity{UID: runs, Content: now.Content, Shape: now.Shape}
}

// hashed tells the UIDs that contentHash makes from those that manifests give:
// who writes another one wants another pod.
func hashed(uid types.UID) bool {
	b, err := hex.DecodeString(string(uid))
	return err == nil && len(b) == 16 && !strings.ContainsAny(string(uid), "ABCDEF")
}

// shapeOf is a digest of what has to stay for a pod to be the same: all but the
// CPU and memory of its containers, as long as its class stays.
func shapeOf(p *corev1.Pod) string {
	c := p.DeepCopy()
	class := pod.QOS(c)
	c.UID = ""
	for _, key := range []string{pod.AnnotationConfigHash, pod.AnnotationConfigSeen} {
		delete(c.Annotations, key)
	}
	for _, list := range [][]corev1.Container{c.Spec.InitContainers, c.Spec.Containers} {
		for i := range list {
			list[i].Resources = Unsized(list[i].Resources)
		}
	}
	text, _ := json.Marshal(c) // made of values that came from JSON
	sum := sha256.Sum256(append(text, class...))
	return hex.EncodeToString(sum[:])
}

// Unsized are resources without those that can change while a container runs.
func Unsized(r corev1.ResourceRequirements) corev1.ResourceRequirements {
	drop := func(list corev1.ResourceList) corev1.ResourceList {
		list = maps.Clone(list)
		delete(list, corev1.ResourceCPU)
		delete(list, corev1.ResourceMemory)
		if len(list) == 0 {
			return nil
		}
		return list
	}
	r.Requests, r.Limits = drop(r.Requests), drop(r.Limits)
	return r
}

// Resources spells the resources of all containers, to be compared.
func Resources(p *corev1.Pod) string {
	text, _ := json.Marshal(sizes(p)) // made of values that came from JSON
	return string(text)
}

func sizes(p *corev1.Pod) map[string]corev1.ResourceRequirements {
	all := map[string]corev1.ResourceRequirements{}
	for _, c := range pod.Containers(p) {
		if c.Kind != pod.Ephemeral {
			all[c.Name] = c.Resources
		}
	}
	return all
}

func (a *amendment) apply(p *corev1.Pod) {
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			if r, ok := a.Resources[list[i].Name]; ok {
				list[i].Resources = *r.DeepCopy()
			}
		}
	}
	for _, e := range a.Ephemeral {
		p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, *e.DeepCopy())
	}
}

// amended is what makes base the pod now.
func amended(base, now *corev1.Pod) *amendment {
	a := &amendment{}
	if Resources(base) != Resources(now) {
		a.Base, a.Resources = Resources(base), sizes(now)
	}
	a.Ephemeral = slices.Clone(now.Spec.EphemeralContainers[len(base.Spec.EphemeralContainers):])
	return a
}
