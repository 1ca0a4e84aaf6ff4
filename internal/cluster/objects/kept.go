package objects

import (
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/model/object"
)

// Kept is what a pod was told of when the API server was last heard.
type Kept struct {
	Pod *corev1.Pod
	// Objects are those of the table that were there. What the pod names besides
	// was not.
	Objects  []object.Value
	Services []*corev1.Service
	Bundles  []*certificatesv1beta1.ClusterTrustBundle
}

// Restore makes the saved objects of pods current until the API server has answered for the object, or EndRestore is
// called. A restored object is visible when a pod names it.
func (c *Cluster) Restore(pods []Kept) {
	c.mu.Lock()
	defer c.unlock()
	c.kept = answers(pods)
	for key := range c.followers {
		c.recall(key)
	}
}

// EndRestore must be called when the API server has sent the list of this node's pods. Restored objects stay until
// they are read again. Objects that were restored as missing become unknown.
func (c *Cluster) EndRestore() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept = nil
}

// recall begins what is known of a key with how it was before.
func (c *Cluster) recall(key object.Key) {
	items, kept := c.kept[key]
	if !kept || c.heard[key] {
		return
	}
	if c.take(key, items) || len(items) == 0 {
		c.tell(key)
	}
}

// answers are what lists of all that pods name would have had.
func answers(pods []Kept) map[object.Key][]object.Value {
	all := map[object.Key][]object.Value{}
	for _, k := range pods {
		for _, v := range k.Objects {
			all[object.KeyOf(v)] = []object.Value{v}
		}
	}
	for _, k := range pods {
		for _, key := range Named(k.Pod) {
			if _, there := all[key]; !there {
				all[key] = nil
			}
		}
		for _, key := range serviceKeys(k.Pod) {
			all[key] = nil
			for _, s := range k.Services {
				if s.Namespace == key.Namespace && (key.Name == object.Every || key.Name == s.Name) {
					all[key] = append(all[key], s)
				}
			}
		}
		if Trusts(k.Pod) {
			all[object.Bundles()] = nil
			for _, b := range k.Bundles {
				all[object.Bundles()] = append(all[object.Bundles()], b)
			}
		}
	}
	return all
}
