package csi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-run/berth/internal/base/eventually"
	"github.com/berth-run/berth/internal/cluster/kubeapi/kubeapitest"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/node/plugin"
	"github.com/berth-run/berth/internal/pod/steps/volume/csi/driver"
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

// joined makes a node of a cluster with its own credentials. It also returns the admin's client.
func joined(t *testing.T, o Options) (*node, kubernetes.Interface) {
	t.Helper()
	c := shared.Cluster(t)
	name := strings.ToLower(t.Name())
	_, err := c.Client().CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}},
		metav1.CreateOptions{})
	check(t, err)
	away := &atomic.Bool{}
	config := c.NodeConfig(name)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return unlessAway{next, away} })
	o.Client, err = kubernetes.NewForConfig(config)
	check(t, err)
	n := newNode(t, t.TempDir(), o)
	n.away = away
	return n, c.Client()
}

// unlessAway is a transport to the API server that a test can cut.
type unlessAway struct {
	http.RoundTripper
	away *atomic.Bool
}

func (u unlessAway) RoundTrip(r *http.Request) (*http.Response, error) {
	if u.away.Load() {
		return nil, errors.New("no route to host")
	}
	return u.RoundTripper.RoundTrip(r)
}

// createCSIDriver creates the driver's CSIDriver object. It is deleted when the test ends.
func (n *node) createCSIDriver(t *testing.T, admin kubernetes.Interface, spec storagev1.CSIDriverSpec) {
	t.Helper()
	drivers := admin.StorageV1().CSIDrivers()
	_, err := drivers.Create(t.Context(),
		&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: driverName1}, Spec: spec}, metav1.CreateOptions{})
	check(t, err)
	t.Cleanup(func() { check(t, drivers.Delete(context.Background(), driverName1, metav1.DeleteOptions{})) })
	eventually.True(t, "the driver's object is known", func() bool {
		d, known := n.kind.Drivers().Object(driverName1)
		return known && d != nil
	})
}

// publishedDrivers returns the drivers in the CSINode, and the Node's annotation of driver ids.
func (n *node) publishedDrivers(t *testing.T, admin kubernetes.Interface) ([]storagev1.CSINodeDriver, string) {
	t.Helper()
	node, err := admin.CoreV1().Nodes().Get(t.Context(), n.kind.o.Node, metav1.GetOptions{})
	check(t, err)
	got, err := admin.StorageV1().CSINodes().Get(t.Context(), n.kind.o.Node, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		check(t, err)
	}
	return got.Spec.Drivers, node.Annotations["csi.volume.kubernetes.io/nodeid"]
}

func TestRegistrationIsPublished(t *testing.T) {
	n, admin := joined(t, Options{})
	d := &csidriver.Driver{Limit: 7, Topology: map[string]string{"topology.example.com/zone": "a"}}
	start(t, n, d)
	name := n.kind.o.Node
	node, err := admin.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	check(t, err)
	check(t, n.kind.Drivers().EnsureCSINode(t.Context(), node)) // it exists already
	got, err := admin.StorageV1().CSINodes().Get(t.Context(), name, metav1.GetOptions{})
	check(t, err)
	want := []storagev1.CSINodeDriver{{Name: driverName1, NodeID: "id-1",
		TopologyKeys: []string{"topology.example.com/zone"},
		Allocatable:  &storagev1.VolumeNodeResources{Count: new(int32(7))}}}
	if diff := cmp.Diff(want, got.Spec.Drivers); diff != "" || len(got.OwnerReferences) != 1 {
		t.Errorf("CSINode (owners %v):\n%s", got.OwnerReferences, diff)
	}
	node, err = admin.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	check(t, err)
	if node.Annotations["csi.volume.kubernetes.io/nodeid"] != `{"csi.example.com":"id-1"}` ||
		node.Labels["topology.example.com/zone"] != "a" {
		t.Errorf("node: %v, %v", node.Annotations, node.Labels)
	}

	registered, err := n.kind.drivers.Get(driverName1)
	check(t, err)
	d.Limit = 3
	check(t, n.kind.Drivers().RefreshInfo(t.Context(), registered))
	eventually.True(t, "it has room for 3", func() bool {
		drivers, _ := n.publishedDrivers(t, admin)
		return *drivers[0].Allocatable.Count == 3
	})

	// The Node was deleted and created again, and so is its CSINode.
	check(t, admin.StorageV1().CSINodes().Delete(t.Context(), name, metav1.DeleteOptions{}))
	check(t, n.kind.Drivers().EnsureCSINode(t.Context(), node))
	eventually.True(t, "the new CSINode has the driver", func() bool {
		drivers, _ := n.publishedDrivers(t, admin)
		return len(drivers) == 1
	})

	n.kind.Drivers().Deregister(plugin.Plugin{Name: driverName1, Endpoint: registered.Endpoint})
	eventually.True(t, "the driver is gone", func() bool {
		drivers, ids := n.publishedDrivers(t, admin)
		return len(drivers) == 0 && ids == ""
	})
}

// A driver works while the API server is unreachable, and is published when that returns.
func TestRegistrationWithoutTheAPIServer(t *testing.T) {
	n, admin := joined(t, Options{})
	n.away.Store(true)
	start(t, n, &csidriver.Driver{Topology: map[string]string{"zone": "a"}})
	registered, err := n.kind.drivers.Get(driverName1)
	check(t, err)
	n.away.Store(false)
	eventually.True(t, "the driver is published", func() bool {
		drivers, ids := n.publishedDrivers(t, admin)
		return len(drivers) == 1 && ids == `{"csi.example.com":"id-1"}`
	})

	n.away.Store(true)
	p := plugin.Plugin{Name: driverName1, Endpoint: registered.Endpoint, Versions: []string{"1.0.0"}}
	n.kind.Drivers().Deregister(p)
	n.away.Store(false)
	eventually.True(t, "the driver is removed from the CSINode", func() bool {
		drivers, ids := n.publishedDrivers(t, admin)
		return len(drivers) == 0 && ids == ""
	})

	// A driver that the returning API server rejects stays in use with an event. The next registration fails at once.
	n.away.Store(true)
	check(t, n.kind.Drivers().Register(t.Context(), p))
	label := fmt.Appendf(nil, `{"metadata":{"labels":{"zone":%q}}}`, "b")
	_, err = admin.CoreV1().Nodes().Patch(t.Context(), n.kind.o.Node, types.MergePatchType, label,
		metav1.PatchOptions{})
	check(t, err)
	n.away.Store(false)
	eventually.True(t, "there is an event for the rejection", func() bool {
		return n.table.hasEvent("FailedRegisterCSIDriver")
	})
	_, err = n.kind.drivers.Get(driverName1)
	check(t, err) // mounted volumes need it
	n.kind.Drivers().Deregister(p)
	if err := n.kind.Drivers().Register(t.Context(), p); err == nil ||
		!strings.Contains(err.Error(), "topology value collision") {
		t.Errorf("registration of a driver of another zone: %v", err)
	}
	if _, err := n.kind.drivers.Get(driverName1); err == nil {
		t.Error("a rejected driver is in use")
	}
}

// After a boot without an API server, the state on disk is enough to mount a volume that no controller attaches.
func TestMountWithoutTheAPIServer(t *testing.T) {
	standsIn := &atomic.Bool{}
	standsIn.Store(true)
	n, _ := joined(t, Options{StandsIn: standsIn})
	n.away.Store(true)
	v := n.persistent("data", corev1.PersistentVolumeFilesystem)
	v.Spec.CSI.NodeStageSecretRef = &corev1.SecretReference{Namespace: "x", Name: "key"}
	n.secrets["key"] = &corev1.Secret{Data: map[string][]byte{"password": []byte("s")}}
	d := &csidriver.Driver{Can: allCapabilities()}
	start(t, n, d)
	p := podWith(claimed("data"), false)
	if keys, _ := object.Waits(n.setup(t.Context(), p)); !slices.Contains(keys, driver.Key(driverName1)) {
		t.Errorf("without its CSIDriver the volume waits for %v", keys)
	}
	n.kind.Drivers().Restore(
		map[string]*storagev1.CSIDriver{driverName1: {ObjectMeta: metav1.ObjectMeta{Name: driverName1},
			Spec: storagev1.CSIDriverSpec{
				AttachRequired: new(false), PodInfoOnMount: new(true),
				VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent},
			}}})
	n.setupWhenReady(t, p)
	staged, published := d.Calls("NodeStageVolume")[0].Request.(*csi.NodeStageVolumeRequest),
		d.Calls("NodePublishVolume")[0].Request.(*csi.NodePublishVolumeRequest)
	if staged.GetSecrets()["password"] != "s" || published.GetVolumeContext()[infoName] != "p" {
		t.Errorf("staged as %v, published as %v", staged, published)
	}
	check(t, n.volumes.Remove(t.Context(), podUID))

	n.kind.Drivers().Restore(map[string]*storagev1.CSIDriver{driverName1: nil})
	const want = "waiting for the API server, which is away, to confirm that volume vol-data of CSI driver " +
		"csi.example.com is attached to this node"
	if err := n.setup(t.Context(), p); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("setup of a volume that may be attached elsewhere: %v", err)
	}
	if calls := len(d.Calls("NodeStageVolume")); calls != 1 {
		t.Errorf("staged %d times", calls)
	}
	check(t, n.volumes.Remove(t.Context(), podUID))
}

// The scheduler needs the CSINode of a node without drivers too.
func TestEnsureCSINodeWithoutDrivers(t *testing.T) {
	n, admin := joined(t, Options{})
	name := n.kind.o.Node
	node, err := admin.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	check(t, err)
	for range 2 {
		check(t, n.kind.Drivers().EnsureCSINode(t.Context(), node))
		got, err := admin.StorageV1().CSINodes().Get(t.Context(), name, metav1.GetOptions{})
		check(t, err)
		if len(got.Spec.Drivers) != 0 || len(got.OwnerReferences) != 1 || got.OwnerReferences[0].UID != node.UID {
			t.Errorf("CSINode: %v", got)
		}
	}
}

func TestStageWaitsForTheAttachment(t *testing.T) {
	n, admin := joined(t, Options{})
	ctx := t.Context()
	n.persistent("data", corev1.PersistentVolumeFilesystem)
	d := &csidriver.Driver{Can: allCapabilities()}
	start(t, n, d)
	set := make(chan struct{})
	p := podWith(claimed("data"), false)
	go func() { defer close(set); n.setupWhenReady(t, p) }()

	id := identity{Driver: driverName1, Handle: "vol-data"}
	table := n.kind.Attachments()
	for volumes, known := table.InUse(); !known || len(volumes) == 0; volumes, known = table.InUse() {
		time.Sleep(time.Millisecond) // until setup waits for the attachment
	}
	a := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: attachmentName(id, n.kind.o.Node)},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: driverName1, NodeName: n.kind.o.Node,
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: new("pv-data")}},
	}
	a, err := admin.StorageV1().VolumeAttachments().Create(ctx, a, metav1.CreateOptions{})
	check(t, err)
	if len(d.Calls("NodeStageVolume")) > 0 {
		t.Error("the volume is staged before it is attached")
	}
	a.Status = storagev1.VolumeAttachmentStatus{Attached: true, AttachmentMetadata: map[string]string{"lun": "4"}}
	_, err = admin.StorageV1().VolumeAttachments().UpdateStatus(ctx, a, metav1.UpdateOptions{})
	check(t, err)
	n.kind.Attachments().NodeChanged()
	<-set
	if t.Failed() {
		return
	}
	publish := d.Calls("NodePublishVolume")[0].Request.(*csi.NodePublishVolumeRequest)
	if diff := cmp.Diff(map[string]string{"lun": "4"}, publish.GetPublishContext()); diff != "" {
		t.Errorf("publish context:\n%s", diff)
	}
	check(t, n.volumes.Remove(ctx, podUID))
	if volumes, _ := n.kind.Attachments().InUse(); len(volumes) > 0 {
		t.Errorf("still in use: %v", volumes)
	}
}

// side implements cluster.
type side struct {
	full string // the message of the last NodeFull
}

func (s *side) NodeFull(_ *corev1.Pod, message string) { s.full = message }

func (s *side) Token(_ context.Context, p *corev1.Pod, audience string, _ time.Duration) (string, time.Time, error) {
	return "token of " + p.Name + " for " + audience, time.Unix(1000, 0), nil
}

func (s *side) Refresh(...object.Key) {}

// A pod whose volume exceeds the node's limit must not wait on this node for ever.
func TestFullNodeRejectsThePod(t *testing.T) {
	side := &side{}
	n, admin := joined(t, Options{Cluster: side})
	n.persistent("data", corev1.PersistentVolumeFilesystem)
	start(t, n, &csidriver.Driver{Can: allCapabilities()})
	a := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: attachmentName(identity{Driver: driverName1, Handle: "vol-data"},
			n.kind.o.Node)},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: driverName1, NodeName: n.kind.o.Node,
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: new("pv-data")}},
	}
	a, err := admin.StorageV1().VolumeAttachments().Create(t.Context(), a, metav1.CreateOptions{})
	check(t, err)
	a.Status.AttachError = &storagev1.VolumeError{Message: "8 is the most",
		ErrorCode: new(int32(codes.ResourceExhausted))}
	_, err = admin.StorageV1().VolumeAttachments().UpdateStatus(t.Context(), a, metav1.UpdateOptions{})
	check(t, err)
	const want = "Node has reached its volume attachment limit, rejecting pod. volume vol-data: 8 is the most"
	for side.full == "" {
		if err := n.setup(t.Context(), podWith(claimed("data"), false)); err == nil {
			t.Fatal("the volume is mounted")
		}
	}
	if side.full != want {
		t.Errorf("the pod is rejected: %s", side.full)
	}
}

func TestInlineVolumeGetsPodInfoAndTokens(t *testing.T) {
	n, admin := joined(t, Options{Cluster: &side{}})
	n.createCSIDriver(t, admin, storagev1.CSIDriverSpec{
		AttachRequired: new(false), PodInfoOnMount: new(true), RequiresRepublish: new(true),
		ServiceAccountTokenInSecrets: new(true),
		VolumeLifecycleModes:         []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral},
		TokenRequests:                []storagev1.TokenRequest{{Audience: "vault"}},
	})
	d := &csidriver.Driver{}
	start(t, n, d)
	p := podWith(
		corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: driverName1,
			VolumeAttributes: map[string]string{"size": "1"}}}, false)
	p.Spec.ServiceAccountName = "default"
	n.setupWhenReady(t, p)
	n.allInspected(t) // a pass skips a volume whose inspection still runs
	var parts sync.WaitGroup
	n.kind.pass(t.Context(), &parts, true)
	parts.Wait()
	calls := d.Calls("NodePublishVolume")
	if len(calls) != 2 {
		t.Fatalf("published %d times, want once and again", len(calls))
	}
	got := calls[1].Request.(*csi.NodePublishVolumeRequest)
	want := map[string]string{"size": "1", infoName: "p", infoNamespace: "default", infoUID: string(podUID),
		infoAccount: "default", infoEphemeral: "true"}
	if diff := cmp.Diff(want, got.GetVolumeContext()); diff != "" {
		t.Errorf("volume context:\n%s", diff)
	}
	tokens := map[string]string{
		infoTokens: `{"vault":{"token":"token of p for vault","expirationTimestamp":"1970-01-01T00:16:40Z"}}`}
	if diff := cmp.Diff(tokens, got.GetSecrets()); diff != "" {
		t.Errorf("secrets:\n%s", diff)
	}
	if !strings.HasPrefix(got.GetVolumeId(), "csi-") || got.GetVolumeId() != inlineHandle(podUID, "data") {
		t.Errorf("volume id %s", got.GetVolumeId())
	}
	check(t, n.volumes.Remove(t.Context(), podUID))
}

// bound creates a claim whose volume was made larger, in the API server and in the table, and a pod that uses it.
func (n *node) bound(t *testing.T, admin kubernetes.Interface, namespace, name string) *corev1.Pod {
	t.Helper()
	ctx, api := t.Context(), admin.CoreV1()
	p := podWith(claimed(name), false)
	p.Namespace, p.Name, p.UID, p.Spec.NodeName, p.Spec.Containers[0].Image = namespace, name, "", n.kind.o.Node,
		"example.com/workload:1"
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: p.Namespace},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeName: "pv-" + name,
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Mi")}},
		}}
	c, err := api.PersistentVolumeClaims(p.Namespace).Create(ctx, c, metav1.CreateOptions{})
	check(t, err)
	c.Status = corev1.PersistentVolumeClaimStatus{
		Phase: corev1.ClaimBound, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")},
		AllocatedResources: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Mi")},
		AllocatedResourceStatuses: map[corev1.ResourceName]corev1.ClaimResourceStatus{
			corev1.ResourceStorage: corev1.PersistentVolumeClaimNodeResizePending},
	}
	c, err = api.PersistentVolumeClaims(p.Namespace).UpdateStatus(ctx, c, metav1.UpdateOptions{})
	check(t, err)
	v := n.persistent(name, corev1.PersistentVolumeFilesystem)
	v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: c.Namespace, Name: c.Name, UID: c.UID}
	_, err = api.PersistentVolumes().Create(ctx, v, metav1.CreateOptions{})
	check(t, err)
	n.table.claims[name] = c // it stays so: the table may be older than the API server
	p.Spec.AutomountServiceAccountToken = new(false)
	p, err = api.Pods(p.Namespace).Create(ctx, p, metav1.CreateOptions{})
	check(t, err)
	return p
}

func TestExpansionBeforeThePodStarts(t *testing.T) {
	const (
		starts = iota
		startsLater
		waits
	)
	failing := func(c codes.Code) error { return status.Error(c, "x") }
	inProgress, infeasible := corev1.PersistentVolumeClaimNodeResizeInProgress,
		corev1.PersistentVolumeClaimNodeResizeInfeasible
	n, admin := joined(t, Options{})
	n.createCSIDriver(t, admin, storagev1.CSIDriverSpec{AttachRequired: new(false)})
	d := &csidriver.Driver{Can: allCapabilities()}
	start(t, n, d)
	registered, err := n.kind.drivers.Get(driverName1)
	check(t, err)
	namespace := shared.Cluster(t).Namespace()
	for name, test := range map[string]struct {
		fault    error
		noExpand bool // the driver has no EXPAND_VOLUME
		pod      int
		state    corev1.ClaimResourceStatus
		failed   bool // the claim has the condition NodeResizeError
		capacity string
	}{
		"expanded": {capacity: "2Mi"},
		"failing":  {fault: failing(codes.Internal), pod: waits, state: inProgress, failed: true, capacity: "1Mi"},
		"not-yet":  {fault: failing(codes.Aborted), pod: waits, state: inProgress, capacity: "1Mi"},
		"in-use":   {fault: failing(codes.FailedPrecondition), state: inProgress, failed: true, capacity: "1Mi"},
		"too-large": {fault: failing(codes.OutOfRange), pod: startsLater, state: infeasible, failed: true,
			capacity: "1Mi"},
		"not-possible": {noExpand: true, pod: waits, state: inProgress, failed: true, capacity: "1Mi"},
	} {
		p := n.bound(t, admin, namespace, name)
		d.Fail("NodeExpandVolume", test.fault)
		registered.Capabilities = allCapabilities()
		if test.noExpand {
			registered.Capabilities = slices.DeleteFunc(registered.Capabilities,
				func(c csi.NodeServiceCapability_RPC_Type) bool {
					return c == csi.NodeServiceCapability_RPC_EXPAND_VOLUME
				})
		}
		var failures []bool
		for range 2 {
			err := n.setup(t.Context(), p)
			failures = append(failures, err != nil)
			if err != nil && !strings.Contains(err.Error(), "expand the volume") {
				t.Errorf("%s: %v", name, err)
			}
		}
		if want := []bool{test.pod != starts, test.pod == waits}; !slices.Equal(want, failures) {
			t.Errorf("%s: the mount fails, and fails again: %v, want %v", name, failures, want)
		}
		got, err := admin.CoreV1().PersistentVolumeClaims(p.Namespace).Get(t.Context(), name, metav1.GetOptions{})
		check(t, err)
		failed := slices.ContainsFunc(got.Status.Conditions, func(c corev1.PersistentVolumeClaimCondition) bool {
			return c.Type == corev1.PersistentVolumeClaimNodeResizeError
		})
		if state := got.Status.AllocatedResourceStatuses[corev1.ResourceStorage]; state != test.state ||
			failed != test.failed || got.Status.Capacity.Storage().String() != test.capacity {
			t.Errorf("%s: the claim is %q, with the condition %t, and has %s", name, state, failed,
				got.Status.Capacity.Storage())
		}
		check(t, n.volumes.Remove(t.Context(), p.UID))
	}
	if n.table.hasEvent(resizeFailed) || !n.table.hasEvent(resizeDone) {
		t.Errorf("events %q", n.table.events)
	}
}
