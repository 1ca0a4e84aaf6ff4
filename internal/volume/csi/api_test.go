package csi

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-run/berth/internal/kubeapi/kubeapitest"
	"github.com/berth-run/berth/internal/plugin"
	"github.com/berth-run/berth/test/csidriver"
)

var shared = kubeapitest.NewShared(kubeapitest.Options{})

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// joined is a node of a cluster, with its own credentials, and admin's client.
func joined(t *testing.T, o Options) (*node, kubernetes.Interface) {
	t.Helper()
	c := shared.Cluster(t)
	name := strings.ToLower(t.Name())
	_, err := c.Client().CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	check(t, err)
	o.Client, err = kubernetes.NewForConfig(c.NodeConfig(name))
	check(t, err)
	return newNode(t, t.TempDir(), o), c.Client()
}

func TestCSINode(t *testing.T) {
	n, admin := joined(t, Options{})
	d := &csidriver.Driver{Limit: 7, Topology: map[string]string{"topology.example.com/zone": "a"}}
	start(t, n, d)
	name := n.kind.o.Node
	node, err := admin.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	check(t, err)
	check(t, n.kind.Present(t.Context(), node)) // it is, from here on
	got, err := admin.StorageV1().CSINodes().Get(t.Context(), name, metav1.GetOptions{})
	check(t, err)
	want := []storagev1.CSINodeDriver{{Name: driverName1, NodeID: "id-1", TopologyKeys: []string{"topology.example.com/zone"}, Allocatable: &storagev1.VolumeNodeResources{Count: new(int32(7))}}}
	if diff := cmp.Diff(want, got.Spec.Drivers); diff != "" || len(got.OwnerReferences) != 1 {
		t.Errorf("CSINode (owners %v):\n%s", got.OwnerReferences, diff)
	}
	node, err = admin.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	check(t, err)
	if node.Annotations[annotationIDs] != `{"csi.example.com":"id-1"}` || node.Labels["topology.example.com/zone"] != "a" {
		t.Errorf("node: %v, %v", node.Annotations, node.Labels)
	}

	registered, err := n.kind.driver(driverName1)
	check(t, err)
	d.Limit = 3 // it is told anew
	check(t, n.kind.announce(t.Context(), registered))
	got, err = admin.StorageV1().CSINodes().Get(t.Context(), name, metav1.GetOptions{})
	check(t, err)
	if *got.Spec.Drivers[0].Allocatable.Count != 3 {
		t.Errorf("it has room for %d", *got.Spec.Drivers[0].Allocatable.Count)
	}

	n.kind.Deregister(plugin.Plugin{Name: driverName1, Endpoint: registered.endpoint})
	got, err = admin.StorageV1().CSINodes().Get(t.Context(), name, metav1.GetOptions{})
	check(t, err)
	node, err = admin.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	check(t, err)
	if len(got.Spec.Drivers) > 0 || node.Annotations[annotationIDs] != "" {
		t.Errorf("the driver is still there: %v, %v", got.Spec.Drivers, node.Annotations)
	}
}

// The scheduler looks for a CSINode also on nodes without drivers.
func TestCSINodeWithoutDrivers(t *testing.T) {
	n, admin := joined(t, Options{})
	name := n.kind.o.Node
	node, err := admin.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	check(t, err)
	for range 2 {
		check(t, n.kind.Present(t.Context(), node))
		got, err := admin.StorageV1().CSINodes().Get(t.Context(), name, metav1.GetOptions{})
		check(t, err)
		if len(got.Spec.Drivers) != 0 || len(got.OwnerReferences) != 1 || got.OwnerReferences[0].UID != node.UID {
			t.Errorf("CSINode: %v", got)
		}
	}
}

// A volume waits until it is in use, attached, and the CSIDriver is known.
func TestAttachment(t *testing.T) {
	n, admin := joined(t, Options{})
	ctx := t.Context()
	n.persistent("data", corev1.PersistentVolumeFilesystem)
	d := &csidriver.Driver{Can: allCapabilities()}
	start(t, n, d)
	set := make(chan struct{})
	p := podWith(claimed("data"), false)
	go func() { defer close(set); n.await(t, p) }()

	id := identity{Driver: driverName1, Handle: "vol-data"}
	for volumes, known := n.kind.InUse(); !known || len(volumes) == 0; volumes, known = n.kind.InUse() {
		time.Sleep(time.Millisecond) // until it waits
	}
	a := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: attachmentName(id, n.kind.o.Node)},
		Spec:       storagev1.VolumeAttachmentSpec{Attacher: driverName1, NodeName: n.kind.o.Node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: new("pv-data")}},
	}
	a, err := admin.StorageV1().VolumeAttachments().Create(ctx, a, metav1.CreateOptions{})
	check(t, err)
	if len(d.Calls("NodeStageVolume")) > 0 {
		t.Error("it is staged before it is attached")
	}
	a.Status = storagev1.VolumeAttachmentStatus{Attached: true, AttachmentMetadata: map[string]string{"lun": "4"}}
	_, err = admin.StorageV1().VolumeAttachments().UpdateStatus(ctx, a, metav1.UpdateOptions{})
	check(t, err)
	n.kind.NodeChanged()
	<-set
	if t.Failed() {
		return
	}
	publish := d.Calls("NodePublishVolume")[0].Request.(*csi.NodePublishVolumeRequest)
	if diff := cmp.Diff(map[string]string{"lun": "4"}, publish.GetPublishContext()); diff != "" {
		t.Errorf("publish context:\n%s", diff)
	}
	check(t, n.volumes.Remove(ctx, podUID))
	if volumes, _ := n.kind.InUse(); len(volumes) > 0 {
		t.Errorf("still in use: %v", volumes)
	}
}

// A pod whose volume the node has no room for is not to wait here for ever.
func TestTheNodeIsFull(t *testing.T) {
	full := ""
	n, admin := joined(t, Options{Full: func(_ *corev1.Pod, message string) { full = message }})
	n.persistent("data", corev1.PersistentVolumeFilesystem)
	start(t, n, &csidriver.Driver{Can: allCapabilities()})
	a := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: attachmentName(identity{Driver: driverName1, Handle: "vol-data"}, n.kind.o.Node)},
		Spec:       storagev1.VolumeAttachmentSpec{Attacher: driverName1, NodeName: n.kind.o.Node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: new("pv-data")}},
	}
	a, err := admin.StorageV1().VolumeAttachments().Create(t.Context(), a, metav1.CreateOptions{})
	check(t, err)
	a.Status.AttachError = &storagev1.VolumeError{Message: "8 is the most", ErrorCode: new(int32(codes.ResourceExhausted))}
	_, err = admin.StorageV1().VolumeAttachments().UpdateStatus(t.Context(), a, metav1.UpdateOptions{})
	check(t, err)
	const want = "Node has reached its volume attachment limit, rejecting pod. volume vol-data: 8 is the most"
	for full == "" {
		if err := n.setup(t.Context(), podWith(claimed("data"), false)); err == nil {
			t.Fatal("the volume is mounted")
		}
	}
	if full != want {
		t.Errorf("the pod is rejected: %s", full)
	}
}

func TestInline(t *testing.T) {
	n, admin := joined(t, Options{Token: func(_ context.Context, p *corev1.Pod, audience string, _ time.Duration) (string, time.Time, error) {
		return "token of " + p.Name + " for " + audience, time.Unix(1000, 0), nil
	}})
	o := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: driverName1}, Spec: storagev1.CSIDriverSpec{
		AttachRequired: new(false), PodInfoOnMount: new(true), RequiresRepublish: new(true), ServiceAccountTokenInSecrets: new(true),
		VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral}, TokenRequests: []storagev1.TokenRequest{{Audience: "vault"}},
	}}
	_, err := admin.StorageV1().CSIDrivers().Create(t.Context(), o, metav1.CreateOptions{})
	check(t, err)
	t.Cleanup(func() {
		check(t, admin.StorageV1().CSIDrivers().Delete(context.Background(), o.Name, metav1.DeleteOptions{}))
	})
	d := &csidriver.Driver{}
	start(t, n, d)
	p := podWith(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: driverName1, VolumeAttributes: map[string]string{"size": "1"}}}, false)
	p.Spec.ServiceAccountName = "default"
	n.await(t, p)
	n.tended(t) // what is looked at already is left alone
	var parts sync.WaitGroup
	n.kind.pass(t.Context(), &parts, true)
	parts.Wait()
	calls := d.Calls("NodePublishVolume")
	if len(calls) != 2 {
		t.Fatalf("published %d times, want once and again", len(calls))
	}
	got := calls[1].Request.(*csi.NodePublishVolumeRequest)
	want := map[string]string{"size": "1", infoName: "p", infoNamespace: "default", infoUID: string(podUID), infoAccount: "default", infoEphemeral: "true"}
	if diff := cmp.Diff(want, got.GetVolumeContext()); diff != "" {
		t.Errorf("volume context:\n%s", diff)
	}
	tokens := map[string]string{infoTokens: `{"vault":{"token":"token of p for vault","expirationTimestamp":"1970-01-01T00:16:40Z"}}`}
	if diff := cmp.Diff(tokens, got.GetSecrets()); diff != "" {
		t.Errorf("secrets:\n%s", diff)
	}
	if !strings.HasPrefix(got.GetVolumeId(), "csi-") || got.GetVolumeId() != inlineHandle(podUID, "data") {
		t.Errorf("volume id %s", got.GetVolumeId())
	}
	check(t, n.volumes.Remove(t.Context(), podUID))
}
