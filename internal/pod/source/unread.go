package source

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/source/content"
)

// MayWant reports whether a running static pod that no source wants may belong to a manifest that cannot be used. Such
// a pod keeps running. If a usable manifest wants a pod of the same name, the running pod is an earlier version of
// it.
func (s *Sources) MayWant(o *pod.Observed) bool {
	if !o.Running() || !pod.StaticUID(o.UID) {
		return false
	}
	m := s.merge
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, wanted := m.owner(types.NamespacedName{Namespace: o.Namespace, Name: o.Name}); wanted {
		return false
	}
	for name, offer := range m.origins {
		if name != originLocal && (offer.faulty || content.Faulty(offer.problems)) &&
			mayWant(offer.problems, o, m.nodeName) {
			m.answered = true
			return true
		}
	}
	return false
}

// WantsChanged receives after a change that may turn an earlier answer of MayWant into false. It has one reader.
func (s *Sources) WantsChanged() <-chan struct{} { return s.merge.readable.C() }

// mayWant decides whether a manifest with these problems may want a pod: a problem is about the pod, or may be about
// any pod. Problems that are not reported yet are unknown.
func mayWant(problems []Problem, o *pod.Observed, node string) bool {
	if !content.Faulty(problems) {
		return true
	}
	for _, p := range problems {
		switch {
		case p.Ignored:
		case p.Pod.Name == "" && p.Object.Name == "":
			return true
		case p.Pod.Namespace == o.Namespace &&
			(p.Pod.Name == o.Name || p.Pod.Name+"-"+strings.ToLower(node) == o.Name):
			return true
		}
	}
	return false
}
