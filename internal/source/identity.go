package source

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/checkpoint"
	"github.com/berth-run/berth/internal/pod"
)

// identity is what is remembered of the pod of a manifest in a file or at a URL,
// so that it is the same pod after an edit of its CPU and memory, also when the
// agent did not run meanwhile.
type identity struct {
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

// identities are kept in one file: whoever loses it starts the pods of edited
// manifests anew, nothing worse. The merge's lock guards them.
type identities struct {
	path  string // empty: kept in memory only
	known map[string]identity
	dirty bool
}

var identityFormat = checkpoint.Format{Version: 1}

// placeOf is an origin's pod of that name.
func placeOf(origin string, name types.NamespacedName) string { return origin + " " + name.String() }

// load reads the file of an earlier agent. One that is damaged was moved aside.
func (s *identities) load() error {
	if s.path == "" {
		return nil
	}
	known, err := checkpoint.Load[map[string]identity](s.path, identityFormat)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	maps.Copy(s.known, known)
	return err
}

func (s *identities) save() error {
	if s.path == "" {
		return nil
	}
	return checkpoint.Save(s.path, identityFormat, s.known)
}

// identify gives the pod of a manifest the UID that it keeps, and what was
// changed of it over the API. p stays as it is.
func (s *identities) identify(origin string, p *pod.Pod) *pod.Pod {
	key := placeOf(origin, p.Key())
	was, known := s.known[key]
	now := recognize(was, p)
	if !known || now != was {
		s.known[key], s.dirty = now, true
	}
	c := *p
	c.Pod = p.DeepCopy()
	if c.UID = now.UID; c.UID != p.UID {
		annotate(c.Pod, pod.AnnotationConfigHash, string(now.UID))
	}
	if now.Amended != nil {
		now.Amended.apply(c.Pod)
	}
	return &c
}

// retain forgets what is not at a place that is wanted.
func (s *identities) retain(wanted func(place string) bool) {
	for key := range s.known {
		if !wanted(key) {
			delete(s.known, key)
			s.dirty = true
		}
	}
}

// recognize says who the pod of a manifest is, given who was at its place.
func recognize(was identity, p *pod.Pod) identity {
	shape := shapeOf(p.Pod)
	same := was.Shape == shape && hashed(was.Content) && hashed(p.UID)
	if was.UID == "" || was.Content != p.UID && !same {
		return identity{UID: p.UID, Content: p.UID, Shape: shape}
	}
	now := identity{UID: was.UID, Content: p.UID, Shape: shape, Amended: was.Amended}
	if a := was.Amended; a != nil && a.Resources != nil && a.Base != resourcesOf(p.Pod) {
		now.Amended = nil
		if len(a.Ephemeral) > 0 {
			now.Amended = &amendment{Ephemeral: a.Ephemeral}
		}
	}
	return now
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
			list[i].Resources = unsized(list[i].Resources)
		}
	}
	text, _ := json.Marshal(c) // made of values that came from JSON
	sum := sha256.Sum256(append(text, class...))
	return hex.EncodeToString(sum[:])
}

// unsized are resources without those that can change while a container runs.
func unsized(r corev1.ResourceRequirements) corev1.ResourceRequirements {
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

// resourcesOf spells the resources of all containers, to be compared.
func resourcesOf(p *corev1.Pod) string {
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
	if resourcesOf(base) != resourcesOf(now) {
		a.Base, a.Resources = resourcesOf(base), sizes(now)
	}
	a.Ephemeral = slices.Clone(now.Spec.EphemeralContainers[len(base.Spec.EphemeralContainers):])
	return a
}

// amend changes a pod of a manifest, on disk first.
func (m *merge) amend(key types.NamespacedName, change func(*corev1.Pod) error) (*pod.Pod, error) {
	m.mu.Lock()
	origin, base := m.base(key)
	if base == nil {
		m.mu.Unlock()
		return nil, fmt.Errorf("pod %s: %w", key, ErrNotFound)
	}
	now := m.static.identify(origin, base)
	if err := amendPod(now.Pod, change); err != nil {
		m.mu.Unlock()
		return nil, err
	}
	at := placeOf(origin, key)
	was := m.static.known[at]
	next := was
	next.Amended = amended(base.Pod, now.Pod)
	m.static.known[at] = next
	if err := m.static.save(); err != nil {
		m.static.known[at] = was
		m.mu.Unlock()
		return nil, fmt.Errorf("keep the change of pod %s: %w", key, err)
	}
	m.replace(origin, m.origins[origin].base, time.Now())
	m.settle(origin, time.Now())
	p, ok := m.desired.Get(now.UID)
	if !ok {
		return nil, fmt.Errorf("pod %s: %w", key, ErrNotFound)
	}
	return p, nil
}

// base is the pod of a manifest that the wanted pod of this name stands for.
func (m *merge) base(key types.NamespacedName) (origin string, p *pod.Pod) {
	winner, ok := m.owner(key)
	if !ok || winner.Source == pod.SourceLocal {
		return "", nil
	}
	for _, p := range m.origins[winner.Origin].base {
		if p.Key() == key {
			return winner.Origin, p
		}
	}
	return "", nil
}
