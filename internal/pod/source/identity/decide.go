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

// Identity is the stored identity of the pod of a manifest in a file or at a URL. It lets the pod stay the same pod
// after an edit of its CPU and memory, even while the agent did not run.
type Identity struct {
	// UID is the UID of the running pod. Content is the UID that the manifest's text gives.
	UID     types.UID `json:"uid"`
	Content types.UID `json:"content"`
	// Shape is a digest of everything in the pod that cannot change while it runs.
	Shape string `json:"shape"`
	// Amended holds the changes made over the agent's API.
	Amended *amendment `json:"amended,omitempty"`
	// Former are the UIDs that pods of this place had before, the newest last, at most mostFormer. Such a pod ends. It
	// is not a kubelet's pod, although it may run and have the containers of the manifest.
	Former []types.UID `json:"former,omitempty"`
}

// mostFormer is more than the versions of one manifest that can be ending at the same time, apart from faults.
const mostFormer = 16

// amendment changes the pod of a manifest that the agent must not write.
type amendment struct {
	// Base holds the manifest's resources when they were changed. If the manifest's resources differ later, they count
	// instead.
	Base      string                                 `json:"base"`
	Resources map[string]corev1.ResourceRequirements `json:"resources,omitempty"`
	Ephemeral []corev1.EphemeralContainer            `json:"ephemeral,omitempty"`
}

// recognize returns the identity of a manifest's pod. was is the previous identity at its place.
func recognize(was Identity, p *pod.Pod) Identity {
	shape := shapeOf(p.Pod)
	same := was.Shape == shape && hashed(was.Content) && hashed(p.UID)
	if was.UID == "" || was.Content != p.UID && !same {
		return Identity{UID: p.UID, Content: p.UID, Shape: shape, Former: was.before(p.UID)}
	}
	now := Identity{UID: was.UID, Content: p.UID, Shape: shape, Amended: was.Amended, Former: was.Former}
	if a := was.Amended; a != nil && a.Resources != nil && a.Base != Resources(p.Pod) {
		now.Amended = nil
		if len(a.Ephemeral) > 0 {
			now.Amended = &amendment{Ephemeral: a.Ephemeral}
		}
	}
	return now
}

// before returns the former UIDs of a place whose pod gets the UID now.
func (i Identity) before(now types.UID) (all []types.UID) {
	for _, uid := range append(slices.Clone(i.Former), i.UID) {
		if uid != now && uid != "" {
			all = append(all, uid)
		}
	}
	return all[max(0, len(all)-mostFormer):]
}

// adopt returns the identity of a running pod if the manifest does not set a UID. A former pod of the place is not
// adopted: its manifest has changed since.
func adopt(was, now Identity, runs types.UID) Identity {
	if !hashed(now.Content) || runs == now.UID || slices.Contains(now.Former, runs) {
		return now
	}
	return Identity{UID: runs, Content: now.Content, Shape: now.Shape, Former: was.before(runs)}
}

// hashed reports whether a UID was made by contentHash. Any other UID was set by the manifest's author, who wants a
// separate pod.
func hashed(uid types.UID) bool {
	b, err := hex.DecodeString(string(uid))
	return err == nil && len(b) == 16 && !strings.ContainsAny(string(uid), "ABCDEF")
}

// shapeOf returns a digest of everything that must stay for a pod to be the same: all but the CPU and memory of its
// containers and of the pod as a whole, and its QoS class.
func shapeOf(p *corev1.Pod) string {
	c := p.DeepCopy()
	class := pod.QOS(c)
	c.UID = ""
	for _, key := range []string{pod.AnnotationConfigHash, pod.AnnotationConfigSeen} {
		delete(c.Annotations, key)
	}
	UnsizePod(&c.Spec)
	for _, list := range [][]corev1.Container{c.Spec.InitContainers, c.Spec.Containers} {
		for i := range list {
			list[i].Resources = Unsized(list[i].Resources)
		}
	}
	text, _ := json.Marshal(c) // cannot fail: all values came from JSON
	sum := sha256.Sum256(append(text, class...))
	return hex.EncodeToString(sum[:])
}

// Unsized returns the resources that cannot change while a container runs.
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

// UnsizePod removes the pod-level CPU and memory, which can change while the pod runs (KEP-5419).
func UnsizePod(s *corev1.PodSpec) {
	if s.Resources == nil {
		return
	}
	r := Unsized(*s.Resources)
	s.Resources = &r
	if len(r.Requests)+len(r.Limits)+len(r.Claims) == 0 {
		s.Resources = nil
	}
}

// Resources encodes the resources of a pod and of all its containers for a comparison.
func Resources(p *corev1.Pod) string {
	text, _ := json.Marshal(sizes(p)) // cannot fail: all values came from JSON
	return string(text)
}

// whole is the key of the pod-level resources in a map by container name. No container has this name.
const whole = ""

func sizes(p *corev1.Pod) map[string]corev1.ResourceRequirements {
	all := map[string]corev1.ResourceRequirements{}
	if p.Spec.Resources != nil {
		all[whole] = *p.Spec.Resources
	}
	for _, c := range pod.Containers(p) {
		if c.Kind != pod.Ephemeral {
			all[c.Name] = c.Resources
		}
	}
	return all
}

func (a *amendment) apply(p *corev1.Pod) {
	if r, ok := a.Resources[whole]; ok {
		p.Spec.Resources = r.DeepCopy()
	}
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

// amended returns the changes that turn base into now.
func amended(base, now *corev1.Pod) *amendment {
	a := &amendment{}
	if Resources(base) != Resources(now) {
		a.Base, a.Resources = Resources(base), sizes(now)
	}
	a.Ephemeral = slices.Clone(now.Spec.EphemeralContainers[len(base.Spec.EphemeralContainers):])
	return a
}
