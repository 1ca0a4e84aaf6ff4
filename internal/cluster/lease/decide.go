package lease

import (
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Next returns the lease to write: was with a new renewal time, or a new lease if was is nil. owner is the UID of the
// Node object.
func Next(was *coordinationv1.Lease, node string, owner types.UID, duration time.Duration,
	now time.Time) *coordinationv1.Lease {
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: node, Namespace: corev1.NamespaceNodeLease}}
	if was != nil {
		l = was.DeepCopy()
	}
	seconds, renewed := int32(duration/time.Second), metav1.NewMicroTime(now)
	l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds, l.Spec.RenewTime = &node, &seconds, &renewed
	ours := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: node, UID: owner}
	at := slices.IndexFunc(l.OwnerReferences, func(r metav1.OwnerReference) bool {
		return r.Kind == ours.Kind && r.Name == node
	})
	switch {
	case owner == "":
	case at < 0:
		l.OwnerReferences = append(l.OwnerReferences, ours)
	default: // the Node may have been created again; an owner with the old UID would be garbage collected
		l.OwnerReferences[at].UID = owner
	}
	return l
}
