package takeover

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/model/pod"
)

// decide chooses among the runtime's pods the one that runs for a manifest. written is when the manifest was last
// written, zero if unknown. hashes are the hashes of its containers. A running pod comes before one that does not run,
// then the pod with the newest container.
func decide(name types.NamespacedName, hashes map[string]string, written time.Time,
	observed []*pod.Observed) (types.UID, bool) {
	var best *pod.Observed
	for _, o := range observed {
		if o.Namespace != name.Namespace || o.Name != name.Name || !pod.StaticUID(o.UID) || !matches(o, hashes) ||
			newest(o).Before(written) {
			continue
		}
		if best == nil || better(o, best) {
			best = o
		}
	}
	if best == nil {
		return "", false
	}
	return best.UID, true
}

func better(a, b *pod.Observed) bool {
	if a.Running() != b.Running() {
		return a.Running()
	}
	return newest(a).After(newest(b))
}

// matches reports whether the pod has containers and the newest instance of each has the manifest's hash.
func matches(o *pod.Observed, hashes map[string]string) bool {
	seen := map[string]bool{}
	for _, c := range o.Containers { // newest first
		if seen[c.Name] {
			continue
		}
		seen[c.Name] = true
		if want, ok := hashes[c.Name]; !ok || c.Hash != want {
			return false
		}
	}
	return len(seen) > 0
}

// newest returns when the last sandbox or container was created.
func newest(o *pod.Observed) time.Time {
	var at time.Time
	for _, s := range o.Sandboxes {
		if s.CreatedAt.After(at) {
			at = s.CreatedAt
		}
	}
	for _, c := range o.Containers {
		if c.CreatedAt.After(at) {
			at = c.CreatedAt
		}
	}
	return at
}
