package lease

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

func TestNext(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	lease := func(owners ...metav1.OwnerReference) *coordinationv1.Lease {
		renewed := metav1.NewMicroTime(now)
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: "n1", Namespace: "kube-node-lease", OwnerReferences: owners},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("n1"), LeaseDurationSeconds: ptr.To[int32](40),
				RenewTime: &renewed},
		}
	}
	node := func(uid types.UID) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "n1", UID: uid}
	}
	for name, test := range map[string]struct {
		was   *coordinationv1.Lease
		owner types.UID
		want  *coordinationv1.Lease
	}{
		"new":              {nil, "a", lease(node("a"))},
		"renewed":          {lease(node("a")), "a", lease(node("a"))},
		"of another node":  {lease(node("a")), "b", lease(node("b"))},
		"without an owner": {lease(), "a", lease(node("a"))},
		"owner not known":  {lease(node("a")), "", lease(node("a"))},
	} {
		t.Run(name, func(t *testing.T) {
			if test.was != nil {
				test.was.Spec.RenewTime = &metav1.MicroTime{Time: now.Add(-time.Minute)}
			}
			if diff := cmp.Diff(test.want, Next(test.was, "n1", test.owner, 40*time.Second, now)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
