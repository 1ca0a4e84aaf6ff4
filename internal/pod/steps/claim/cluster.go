package claim

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/model/intree"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/pod"
)

// cluster has the claims and volumes of a control plane. The error is an *object.Missing if an object does not exist,
// and an *object.Unknown until the API server has answered.
type cluster interface {
	PersistentVolumeClaim(namespace, name string) (*corev1.PersistentVolumeClaim, error)
	PersistentVolume(name string) (*corev1.PersistentVolume, error)
}

// users are the API server's pods that use each of its claims. They are only in memory: after a restart, each pod calls
// Bound again.
type users map[types.NamespacedName]map[types.UID]bool

// boundByCluster returns the volume that the control plane has bound a pod's claim to. The caller holds the lock.
func (c *Claims) boundByCluster(name types.NamespacedName, p *corev1.Pod, v *corev1.Volume) (*corev1.PersistentVolume,
	error) {
	claim, err := c.cfg.Cluster.PersistentVolumeClaim(name.Namespace, name.Name)
	if err != nil {
		return nil, err
	}
	if err := usable(claim, p, v); err != nil {
		return nil, lacking(name, err)
	}
	volume, err := c.cfg.Cluster.PersistentVolume(claim.Spec.VolumeName)
	if err != nil {
		return nil, err
	}
	place := volume // a migrated volume names the driver's topology in its nodeAffinity
	if migrated, ok, err := intree.Persistent(volume); ok && err == nil {
		place = migrated
	}
	if err := fits(claim, place, c.node()); err != nil {
		return nil, &object.Lacking{Key: object.KeyOf(volume), Err: err}
	}
	if other, found := otherUser(claim, c.users[name], p.UID); found {
		return nil,
			lacking(name,
				fmt.Errorf(
					"volume uses the ReadWriteOncePod access mode and is already in use by the pod with the UID %s",
					other))
	}
	if c.users[name] == nil {
		c.users[name] = map[types.UID]bool{}
	}
	c.users[name][p.UID] = true
	return volume, nil
}

// node is this node with its current labels in the cluster.
func (c *Claims) node() *corev1.Node {
	if c.cfg.Labels == nil {
		return c.cfg.Node
	}
	n := c.cfg.Node.DeepCopy()
	n.Labels = c.cfg.Labels.Labels()
	return n
}

// releaseOfCluster removes a pod from the users of the cluster's claims. It needs the lock.
func (c *Claims) releaseOfCluster(uid types.UID) {
	for name, pods := range maps.All(c.users) {
		if !pods[uid] {
			continue
		}
		delete(pods, uid)
		if len(pods) == 0 {
			delete(c.users, name)
		}
		c.changed[keyOf(name)] = true
		c.wake.Wake()
	}
}

// ofCluster reports whether a pod comes from the API server. Then its claims do too.
func ofCluster(p *corev1.Pod) bool {
	from := pod.Source(p.Annotations[pod.AnnotationConfigSource])
	return from == "" || from == pod.SourceAPI
}
