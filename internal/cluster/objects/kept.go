package objects

import (
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/model/object"
)

// Kept is a saved pod with the objects that it used when the API server last answered.
type Kept struct {
	Pod *corev1.Pod
	// Objects are the existing objects of the table. Other objects that the pod names did not exist.
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
		c.restore(key)
	}
}

// EndRestore must be called when the API server has sent the list of this node's pods. Restored objects stay until
// they are read again. Objects that were restored as missing become unknown.
func (c *Cluster) EndRestore() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept = nil
}

// restore makes the saved state of a key current.
func (c *Cluster) restore(key object.Key) {
	items, kept := c.kept[key]
	if !kept || c.received[key] {
		return
	}
	if c.store(key, items) || len(items) == 0 {
		c.report(key)
	}
}

// answers returns the lists that the API server would have sent for all keys of the saved pods.
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
