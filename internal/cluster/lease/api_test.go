package lease

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-run/berth/internal/base/eventually"
	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/cluster/kubeapi/kubeapitest"
)

// The agent creates a lease when it knows the Node object, and renews it. It creates the lease again after a deletion,
// and renews it again when the API server is back.
func TestALeaseIsCreatedRenewedAndRestored(t *testing.T) {
	c := kubeapitest.Start(t, kubeapitest.Options{})
	client, err := kubernetes.NewForConfig(c.NodeConfig("n1"))
	if err != nil {
		t.Fatal(err)
	}
	admin := c.Client().CoordinationV1().Leases(corev1.NamespaceNodeLease)
	nodes := store.New[string, *corev1.Node]()
	r := New(Options{
		Client: client, Node: "n1", Duration: 2 * time.Second, Nodes: nodes,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	// renewed waits for a lease with a renewal after that time.
	renewed := func(after time.Time) (l *coordinationv1.Lease) {
		t.Helper()
		eventually.Nothing(t, func() string {
			l, err = admin.Get(t.Context(), "n1", metav1.GetOptions{})
			if err == nil && l.Spec.RenewTime.After(after) {
				return ""
			}
			return fmt.Sprintf("the lease is not renewed: %v, %v", l, err)
		})
		return l
	}

	n, err := client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	nodes.Put("n1", n)
	l := renewed(time.Time{})
	if diff := cmp.Diff([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n1", UID: n.UID}},
		l.OwnerReferences); diff != "" {
		t.Error(diff)
	}
	if got := fmt.Sprint(*l.Spec.HolderIdentity, *l.Spec.LeaseDurationSeconds); got != "n12" {
		t.Errorf("holder and duration are %s", got)
	}
	renewed(l.Spec.RenewTime.Time)

	// Somebody else changes the lease, and then deletes it.
	if l, err = admin.Patch(t.Context(), "n1", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`),
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if l = renewed(l.Spec.RenewTime.Time); l.Labels["a"] != "b" {
		t.Error("what somebody else wrote is gone")
	}
	if err := admin.Delete(t.Context(), "n1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	renewed(l.Spec.RenewTime.Time)

	c.KillAPIServer()
	c.StartAPIServer()
	renewed(time.Now())
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
