package claim

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/pod"
)

// cluster tells of the claims and volumes of a control plane. What is not there is
// an *object.Missing, what it has not told of yet an *object.Unknown.
type cluster interface {
	PersistentVolumeClaim(namespace, name string) (*corev1.PersistentVolumeClaim, error)
	PersistentVolume(name string) (*corev1.PersistentVolume, error)
}

// users are the pods of the cluster that use each of its claims. They are in
// memory: after a restart each pod says it again.
type users map[types.NamespacedName]map[types.UID]bool

// boundByCluster returns the volume that the control plane has bound a pod's claim
// to. The lock is held.
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
	if err := fits(claim, volume, c.node()); err != nil {
		return nil, &object.Lacking{Key: object.KeyOf(volume), Err: err}
	}
	if other, taken := excludesOf(claim, c.users[name], p.UID); taken {
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

// node is this node as the cluster labels it now.
func (c *Claims) node() *corev1.Node {
	if c.cfg.Labels == nil {
		return c.cfg.Node
	}
	n := c.cfg.Node.DeepCopy()
	n.Labels = c.cfg.Labels()
	return n
}

// releaseOfCluster strikes a pod out as a user of the cluster's claims. The lock is
// held.
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
		c.look()
	}
}

// ofCluster says that a pod is the API server's: its claims are too.
func ofCluster(p *corev1.Pod) bool {
	from := pod.Source(p.Annotations[pod.AnnotationConfigSource])
	return from == "" || from == pod.SourceAPI
}
