package csi

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/eventually"
	"github.com/berth-run/berth/internal/base/looptest"
	"github.com/berth-run/berth/internal/base/roottest"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/node/plugin"
	"github.com/berth-run/berth/internal/pod/steps/volume"
	"github.com/berth-run/berth/internal/pod/steps/volume/csi/driver"
	"github.com/berth-run/berth/internal/pod/worker"
	"github.com/berth-run/berth/test/csidriver"
)

const (
	driverName1 = "csi.example.com"
	podUID      = types.UID("11111111-2222-3333-4444-555555555555")
)

func allCapabilities() []csi.NodeServiceCapability_RPC_Type {
	return []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME, csi.NodeServiceCapability_RPC_EXPAND_VOLUME,
		csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
	}
}

// table has the objects that pods name, and the events and changes that the volumes report.
type table struct {
	mu      sync.Mutex
	volumes map[string]*corev1.PersistentVolume
	claims  map[string]*corev1.PersistentVolumeClaim
	secrets map[string]*corev1.Secret
	events  []string
	changed chan object.Key
}

func (o *table) PersistentVolume(name string) (*corev1.PersistentVolume, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if v := o.volumes[name]; v != nil {
		return v, nil
	}
	return nil, &object.Missing{Key: object.Key{Kind: object.PersistentVolume, Name: name}}
}

func (o *table) PersistentVolumeClaim(namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if c := o.claims[name]; c != nil {
		return c, nil
	}
	return nil, &object.Missing{Key: object.Key{Kind: object.PersistentVolumeClaim, Namespace: namespace, Name: name}}
}

func (o *table) Secret(namespace, name string) (*corev1.Secret, error) {
	if s := o.secrets[name]; s != nil {
		return s, nil
	}
	return nil, &object.Missing{Key: object.Key{Kind: object.Secret, Namespace: namespace, Name: name}}
}

func (o *table) Bound(_ context.Context, _ *corev1.Pod, v *corev1.Volume) (*corev1.PersistentVolume, error) {
	return o.PersistentVolume("pv-" + v.PersistentVolumeClaim.ClaimName)
}

func (*table) Released(types.UID) error { return nil }

func (o *table) Event(_ corev1.ObjectReference, _, reason, _ string, _ ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, reason)
}

// hasEvent reports whether there was an event with that reason.
func (o *table) hasEvent(reason string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Contains(o.events, reason)
}

// node is the volumes of one agent in a directory.
type node struct {
	*table
	away    *atomic.Bool // the API server is unreachable; nil without a cluster
	root    string
	kind    *Kind
	volumes *volume.Volumes
}

// AddAll implements driver.Changes.
func (n *node) AddAll(keys map[object.Key]bool) {
	for key := range keys {
		n.changed <- key
	}
}

func newNode(t *testing.T, root string, o Options) *node {
	t.Helper()
	roottest.Need(t, "mounting")
	n := &node{table: &table{volumes: map[string]*corev1.PersistentVolume{},
		claims:  map[string]*corev1.PersistentVolumeClaim{},
		secrets: map[string]*corev1.Secret{}, changed: make(chan object.Key, 100)}, root: root}
	o.Root, o.Node, o.Objects, o.Events, o.Now, o.Log = root, "node-1", n.table, n.table, time.Now,
		slog.New(slog.DiscardHandler)
	if o.Client != nil {
		o.Node = t.Name()
	}
	o.Node = strings.ToLower(o.Node)
	o.Changed = n
	n.kind = New(o)
	n.volumes = volume.New(volume.Config{Root: root, Kinds: []volume.Kind{n.kind}, Claims: n.table, Events: n.table})
	t.Cleanup(looptest.Start(t, n.kind.Run, context.Canceled))
	return n
}

// driver is the registered driver.
func (n *node) driver(t *testing.T) *driver.Driver {
	t.Helper()
	d, err := n.kind.drivers.Get(driverName1)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (n *node) setup(ctx context.Context, p *corev1.Pod) error {
	return n.volumes.Step().Setup(ctx, &worker.Run{Pod: &pod.Pod{Pod: p}})
}

// setupWhenReady sets a pod up like its worker: again after each change that it waits for.
func (n *node) setupWhenReady(t *testing.T, p *corev1.Pod) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		err := n.setup(ctx, p)
		if err == nil {
			return
		}
		keys, only := object.Waits(err)
		if !only {
			t.Fatal(err)
		}
		select {
		case <-n.changed:
		case <-ctx.Done():
			t.Fatalf("waits for %v: %v", keys, err)
		}
	}
}

// allInspected waits until Run has inspected every volume once.
func (n *node) allInspected(t *testing.T) {
	t.Helper()
	eventually.True(t, "all volumes are inspected", func() bool {
		n.kind.mu.Lock()
		all := true
		for _, p := range n.kind.published {
			p.mu.Lock()
			all = all && p.inspected && !p.inspecting
			p.mu.Unlock()
		}
		n.kind.mu.Unlock()
		return all
	})
}

// start serves a driver and registers it. At the end of the test it reports and unmounts mounts that are left.
func start(t *testing.T, n *node, d *csidriver.Driver) (stop func()) {
	t.Helper()
	d.Name, d.NodeID = driverName1, "id-1"
	if d.Dir == "" {
		d.Dir = t.TempDir()
	}
	socket := filepath.Join(t.TempDir(), "csi.sock")
	stop, err := d.Serve(socket, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(n.root))
		if err != nil {
			t.Error(err)
		}
		for _, m := range mounts {
			t.Errorf("still mounted: %s", m.Mountpoint)
			_ = unix.Unmount(m.Mountpoint, unix.MNT_DETACH)
		}
	})
	if err := n.kind.Drivers().Register(t.Context(),
		plugin.Plugin{Name: d.Name, Type: plugin.TypeCSI, Endpoint: socket, Versions: []string{"1.0.0"}}); err != nil {
		t.Fatal(err)
	}
	return stop
}

func (n *node) persistent(name string, mode corev1.PersistentVolumeMode) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + name}, Spec: corev1.PersistentVolumeSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeMode: &mode,
		Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Mi")},
		PersistentVolumeSource: corev1.PersistentVolumeSource{
			CSI: &corev1.CSIPersistentVolumeSource{Driver: driverName1, VolumeHandle: "vol-" + name,
				VolumeAttributes: map[string]string{"a": "b"}}},
	}}
	n.table.volumes[v.Name] = v
	return v
}

func podWith(v corev1.VolumeSource, block bool) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", UID: podUID}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "c"}}, Volumes: []corev1.Volume{{Name: "data", VolumeSource: v}},
	}}
	if block {
		p.Spec.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "data", DevicePath: "/dev/x"}}
	} else {
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	}
	return p
}

func claimed(name string) corev1.VolumeSource {
	return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}
}

func TestFileSystemIsStagedPublishedAndRemoved(t *testing.T) {
	root := t.TempDir()
	n := newNode(t, root, Options{})
	v := n.persistent("data", corev1.PersistentVolumeFilesystem)
	v.Spec.CSI.NodeStageSecretRef = &corev1.SecretReference{Namespace: "x", Name: "key"}
	v.Spec.CSI.FSType = "ext4"
	n.secrets["key"] = &corev1.Secret{Data: map[string][]byte{"password": []byte("s")}}
	p := podWith(claimed("data"), false)
	p.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: new(int64(4711))}

	// The driver registers after the pod.
	if _, only := object.Waits(n.setup(t.Context(), p)); !only {
		t.Error("a volume does not wait for its driver to register")
	}
	d := &csidriver.Driver{Can: allCapabilities()}
	start(t, n, d)
	n.setupWhenReady(t, p)

	target := filepath.Join(root, "pods", string(podUID), "volumes/kubernetes.io~csi/pv-data")
	staging := filepath.Join(root, "plugins/kubernetes.io/csi", driverName1, hash("vol-data"), "globalmount")
	if path, _ := n.volumes.Path(podUID, "data"); path != filepath.Join(target, "mount") {
		t.Errorf("the volume is at %q", path)
	}
	if got, ok, err := load(target); !ok || err != nil ||
		!cmp.Equal(got, data{SpecName: "pv-data", Handle: "vol-data", Driver: driverName1, Node: "node-1",
			Mode: "Persistent", Attachment: "csi-" + hash("vol-data", driverName1, "node-1")}) {
		t.Errorf("vol_data.json: %+v, %t, %v", got, ok, err)
	}
	request := d.Calls("NodeStageVolume")[0].Request.(*csi.NodeStageVolumeRequest)
	if request.GetStagingTargetPath() != staging || request.GetSecrets()["password"] != "s" ||
		request.GetVolumeCapability().GetMount().GetFsType() != "ext4" {
		t.Errorf("staged as %v", request)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(target, "mount"), &st); err != nil || st.Gid != 4711 {
		t.Errorf("fsGroup: %d, %v", st.Gid, err)
	}
	usage, ok := n.kind.Stats(filepath.Join(target, "mount"))
	for ; ok && usage == nil; usage, ok = n.kind.Stats(filepath.Join(target, "mount")) {
		time.Sleep(time.Millisecond) // until the driver has answered
	}
	if !ok || *usage.Used != 40 || *usage.InodesFree != 9 {
		t.Errorf("usage %+v, %t", usage, ok)
	}

	// An agent that is killed while it writes the volume's data leaves a file. The next agent finds the volume on disk
	// and removes it.
	for _, dir := range []string{target, filepath.Dir(staging)} {
		if err := os.WriteFile(filepath.Join(dir, "vol_data.json.tmp"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	again := newNode(t, root, Options{})
	if err := again.kind.Drivers().Register(t.Context(),
		plugin.Plugin{Name: driverName1, Endpoint: n.driver(t).Endpoint,
			Versions: []string{"1.0.0"}}); err != nil {
		t.Fatal(err)
	}
	if err := again.volumes.Remove(t.Context(), podUID); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{target, filepath.Dir(staging)} {
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s still exists: %v", path, err)
		}
	}
	if len(d.Calls("NodeUnpublishVolume")) != 1 || len(d.Calls("NodeUnstageVolume")) != 1 {
		t.Errorf("%d unpublished, %d unstaged", len(d.Calls("NodeUnpublishVolume")), len(d.Calls("NodeUnstageVolume")))
	}
}

func TestBlockDeviceIsPublishedAndRemoved(t *testing.T) {
	root := t.TempDir()
	n := newNode(t, root, Options{})
	n.persistent("disk", corev1.PersistentVolumeBlock)
	d := &csidriver.Driver{Can: allCapabilities()}
	start(t, n, d)
	p := podWith(claimed("disk"), true)
	n.setupWhenReady(t, p)
	base := filepath.Join(root, "plugins/kubernetes.io/csi/volumeDevices")
	path, _ := n.volumes.Path(podUID, "data")
	if path != filepath.Join(base, "publish/pv-disk", string(podUID)) {
		t.Errorf("the device is at %q", path)
	}
	if info, err := os.Stat(path); err != nil || info.Mode()&os.ModeDevice == 0 {
		t.Errorf("not a device: %v, %v", info, err)
	}
	link := filepath.Join(root, "pods", string(podUID), "volumeDevices/kubernetes.io~csi/pv-disk")
	if to, err := os.Readlink(link); err != nil || to != path {
		t.Errorf("%s leads to %q, %v", link, to, err)
	}
	if err := n.volumes.Remove(t.Context(), podUID); err != nil {
		t.Fatal(err)
	}
	for _, left := range []string{link, path, filepath.Join(base, "staging/pv-disk"), filepath.Join(base, "pv-disk")} {
		if _, err := os.Lstat(left); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s still exists: %v", left, err)
		}
	}
}

// A driver that fails, hangs or is gone delays only its own pod, whose setup can be interrupted and repeated.
func TestSetupRecoversFromDriverFaults(t *testing.T) {
	n := newNode(t, t.TempDir(), Options{})
	n.persistent("data", corev1.PersistentVolumeFilesystem)
	d := &csidriver.Driver{Can: allCapabilities()}
	start(t, n, d)
	p := podWith(claimed("data"), false)

	d.Fail("NodePublishVolume", status.Error(codes.Internal, "out of order"))
	if err := n.setup(t.Context(), p); err == nil || !strings.Contains(err.Error(), "out of order") {
		t.Errorf("setup with a failing driver: %v", err)
	}
	d.Fail("NodePublishVolume", nil)
	d.Fail("NodeStageVolume", csidriver.ErrHang)
	n.kind.mu.Lock()
	clear(n.kind.staged)
	n.kind.mu.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.setup(ctx, p) }()
	for len(d.Calls("NodeStageVolume")) < 2 {
		time.Sleep(time.Millisecond) // until the call has arrived
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("setup succeeded although the driver hangs")
	}
	d.Fail("NodeStageVolume", nil)
	n.setupWhenReady(t, p)

	// Without its driver, a volume waits to be unmounted.
	endpoint := n.driver(t).Endpoint
	n.kind.Drivers().Deregister(plugin.Plugin{Name: driverName1, Endpoint: "another"})
	if _, err := n.kind.drivers.Get(driverName1); err != nil {
		t.Error("deregistering another endpoint removed the driver")
	}
	n.kind.Drivers().Deregister(plugin.Plugin{Name: driverName1, Endpoint: endpoint})
	if keys, _ := object.Waits(n.volumes.Remove(t.Context(), podUID)); len(keys) == 0 ||
		keys[0] != driver.Key(driverName1) {
		t.Errorf("unmounting without the driver waits for %v", keys)
	}
	if err := n.kind.Drivers().Register(t.Context(),
		plugin.Plugin{Name: driverName1, Endpoint: endpoint, Versions: []string{"1.0.0"}}); err != nil {
		t.Fatal(err)
	}
	if err := n.volumes.Remove(t.Context(), podUID); err != nil {
		t.Error(err)
	}
}

func TestRemoveNeedsNoDriverForAVolumeNeverPublished(t *testing.T) {
	n := newNode(t, t.TempDir(), Options{})
	n.persistent("data", corev1.PersistentVolumeFilesystem)
	if err := n.setup(t.Context(), podWith(claimed("data"), false)); err == nil {
		t.Fatal("setup succeeded without a driver")
	}
	if err := n.volumes.Remove(t.Context(), podUID); err != nil {
		t.Error(err)
	}
}

func TestInlineVolumeNeedsACSIDriverObject(t *testing.T) {
	n := newNode(t, t.TempDir(), Options{})
	start(t, n, &csidriver.Driver{})
	err := n.setup(t.Context(), podWith(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: driverName1}}, false))
	if err == nil ||
		!strings.Contains(err.Error(),
			`volume mode "Ephemeral" not supported by driver csi.example.com (no CSIDriver object)`) {
		t.Errorf("got %v", err)
	}
	if err := n.volumes.Remove(t.Context(), podUID); err != nil {
		t.Error(err)
	}
}

// The shared part is unstaged only after the last of the pods that use it.
func TestRemoveUndoesVolumesOfAKubelet(t *testing.T) {
	n := newNode(t, t.TempDir(), Options{})
	d := &csidriver.Driver{Can: allCapabilities()}
	start(t, n, d)
	const other = types.UID("22222222-2222-3333-4444-555555555555")
	at := n.kind.layout.paths(identity{Driver: driverName1, Handle: "vol"})
	saved := data{SpecName: "pv", Handle: "vol", Driver: driverName1, Node: "node-1", Mode: "Persistent"}
	err := saved.save(at.data)
	for _, uid := range []types.UID{podUID, other} {
		err = errors.Join(err, saved.save(filepath.Join(n.root, "pods", string(uid), "volumes", dirName, "pv")))
	}
	inline := saved
	inline.Mode = "Ephemeral"
	err = errors.Join(err, inline.save(filepath.Join(n.root, "pods", string(other), "volumes", dirName, "inline")),
		os.Mkdir(at.staging, 0o750), n.volumes.Adopt())
	if err != nil {
		t.Fatal(err)
	}
	for i, uid := range []types.UID{podUID, other} {
		if err := n.volumes.Remove(t.Context(), uid); err != nil {
			t.Fatal(err)
		}
		if len(d.Calls("NodeUnstageVolume")) != i {
			t.Errorf("after %s: unstaged %d times", uid, len(d.Calls("NodeUnstageVolume")))
		}
	}
	if len(d.Calls("NodeUnpublishVolume")) != 3 {
		t.Errorf("unpublished %d times", len(d.Calls("NodeUnpublishVolume")))
	}
	if _, err := os.Lstat(at.data); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s still exists: %v", at.data, err)
	}
}
