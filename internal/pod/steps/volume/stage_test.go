package volume_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/steps/volume"
	"github.com/berth-run/berth/internal/pod/worker"
)

// shared is a Stager: its part for the node is a tmpfs, and each pod gets a bind mount. It records its calls.
type shared struct {
	mu    *sync.Mutex
	calls *[]string
	fails *error // of Stage
}

func newShared() shared {
	return shared{mu: &sync.Mutex{}, calls: new([]string), fails: new(error)}
}

func (s shared) say(call string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*s.calls = append(*s.calls, call)
}

func (s shared) said() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := *s.calls
	*s.calls = nil
	return all
}

func (shared) Dir() string                                      { return "test~shared" }
func (shared) Serves(*corev1.Volume) bool                       { return false }
func (shared) ServesPersistent(v *corev1.PersistentVolume) bool { return v.Spec.CSI != nil }
func (shared) Features(volume.Request) volume.Features {
	return volume.Features{FSGroup: true, Block: true}
}
func (shared) StageID(r volume.Request) string { return r.Persistent.Spec.CSI.VolumeHandle }

func (s shared) Stage(_ context.Context, r volume.Request) error {
	if *s.fails != nil {
		return *s.fails
	}
	if mounted, err := volume.Mounted(r.Stage, unix.TMPFS_MAGIC); err != nil || mounted {
		return err
	}
	s.say("stage")
	return unix.Mount("tmpfs", r.Stage, "tmpfs", 0, "")
}

func (s shared) Unstage(_ context.Context, stage string) error {
	s.say("unstage")
	return volume.Unmount(stage)
}

func (shared) Publish(_ context.Context, r volume.Request) (string, error) {
	if r.Block {
		return "/dev/null", os.WriteFile(r.Target, nil, 0o600)
	}
	if mounted, err := volume.Mounted(r.Target, unix.TMPFS_MAGIC); err != nil || mounted {
		return r.Target, err
	}
	return r.Target, errors.Join(os.Mkdir(r.Target, 0o755), unix.Mount(r.Stage, r.Target, "", unix.MS_BIND, ""))
}

func (shared) Unpublish(_ context.Context, target string) error {
	if err := volume.Unmount(target); err != nil {
		return err
	}
	if err := os.Remove(target); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// bound is a Claims whose claims are all bound to the same volume.
type bound struct{ *corev1.PersistentVolume }

func (b bound) Bound(_ context.Context, _ *corev1.Pod, v *corev1.Volume) (*corev1.PersistentVolume, error) {
	if v.PersistentVolumeClaim.ClaimName == "missing" {
		return nil, errors.New("waiting for PersistentVolumeClaim default/missing")
	}
	return b.PersistentVolume, nil
}

func (bound) Released(types.UID) error { return nil }

func disk() *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv",
		Annotations: map[string]string{"pv.beta.kubernetes.io/gid": "2000"}}}
	v.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "test", VolumeHandle: "handle/1"}
	return v
}

func claim(name string) corev1.Volume {
	return corev1.Volume{Name: name,
		VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}
}

func runAs(uid types.UID, volumes ...corev1.Volume) *worker.Run {
	r := run(volumes...)
	r.Pod.UID = uid
	r.Pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: new(int64(3000))}
	return r
}

// The agent restarts after each step.
func TestSharedPartIsUnstagedAfterItsLastPod(t *testing.T) {
	_, root, events := node(t)
	kind := newShared()
	fresh := func() *volume.Volumes {
		return volume.New(volume.Config{Root: root, Kinds: []volume.Kind{kind}, Claims: bound{disk()}, Events: events})
	}
	v := fresh()
	one, two := runAs("u1", claim("data")), runAs("u2", claim("data"))
	for range 2 { // idempotent
		var wg sync.WaitGroup
		for _, r := range []*worker.Run{one, two} {
			wg.Go(func() {
				if err := v.Step().Setup(t.Context(), r); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	if d := cmp.Diff([]string{"stage"}, kind.said()); d != "" {
		t.Errorf("two pods (-want +got):\n%s", d)
	}
	path := filepath.Join(root, "pods/u1/volumes/test~shared/data")
	want := map[string]pod.Volume{"data": {Path: path, Groups: []int64{2000}}}
	if d := cmp.Diff(want, v.Mounted("u1")); d != "" {
		t.Errorf("mounted (-want +got):\n%s", d)
	}
	write(t, filepath.Join(path, "file"), "shared")
	if got := read(t, filepath.Join(root, "pods/u2/volumes/test~shared/data/file")); got != "shared" {
		t.Errorf("the other pod sees %q", got)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o777 || info.Mode()&os.ModeSetgid == 0 {
		t.Errorf("fsGroup was not applied: %v, %v", info.Mode(), err)
	}

	v = fresh()
	if err := v.Remove(t.Context(), "u1"); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string(nil), kind.said()); d != "" {
		t.Errorf("one pod is left (-want +got):\n%s", d)
	}
	orphans, err := fresh().Orphans(func(types.UID) bool { return false })
	if d := cmp.Diff([]types.UID{"u2"}, orphans); d != "" || err != nil {
		t.Errorf("orphans: %v, %s", err, d)
	}
	ids, err := filepath.Glob(filepath.Join(root, "plugins/test~shared/*/id"))
	if err != nil || len(ids) != 1 {
		t.Fatal(ids, err)
	}
	write(t, ids[0]+".tmp", "") // as an agent leaves it that is killed while it writes the file
	for range 2 {
		if err := fresh().Remove(t.Context(), "u2"); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff([]string{"unstage"}, kind.said()); d != "" {
		t.Errorf("no pod is left (-want +got):\n%s", d)
	}
	if left := below(t, filepath.Join(root, "plugins")); len(left) != 1 {
		t.Errorf("left: %v", left)
	}
}

func TestUnstageNamesTheHolderOfABusyMount(t *testing.T) {
	_, root, events := node(t)
	kind := newShared()
	v := volume.New(volume.Config{Root: root, Kinds: []volume.Kind{kind}, Claims: bound{disk()}, Events: events})
	if err := v.Step().Setup(t.Context(), runAs("u1", claim("data"))); err != nil {
		t.Fatal(err)
	}
	stages, err := filepath.Glob(filepath.Join(root, "plugins/test~shared/*/globalmount"))
	if err != nil || len(stages) != 1 {
		t.Fatal(stages, err)
	}
	f, err := os.Create(filepath.Join(stages[0], "held"))
	if err != nil {
		t.Fatal(err)
	}
	if err := v.Remove(t.Context(), "u1"); !errors.Is(err, unix.EBUSY) ||
		!strings.Contains(err.Error(), "by its open file") {
		t.Errorf("got %v, want the holder", err)
	}
	f.Close()
	if err := v.Remove(t.Context(), "u1"); err != nil {
		t.Errorf("removal after the holder let go: %v", err)
	}
	if left := below(t, filepath.Join(root, "plugins")); len(left) != 1 {
		t.Errorf("left: %v", left)
	}
}

func TestSetupOfClaims(t *testing.T) {
	_, root, events := node(t)
	block := corev1.PersistentVolumeBlock
	raw := disk()
	raw.Spec.VolumeMode = &block
	device := func(name string) *worker.Run {
		r := runAs("u1", claim(name))
		c := &r.Pod.Spec.Containers[0]
		c.VolumeMounts, c.VolumeDevices = nil, []corev1.VolumeDevice{{Name: name, DevicePath: "/dev/data"}}
		return r
	}
	empty := run(emptyDir("data", ""))
	empty.Pod.Spec.Containers[0].VolumeMounts, empty.Pod.Spec.Containers[0].VolumeDevices = nil,
		[]corev1.VolumeDevice{{Name: "data"}}
	badGroup := disk()
	badGroup.Annotations = map[string]string{"pv.beta.kubernetes.io/gid": "staff"}
	failing := newShared()
	*failing.fails = errors.New("the disk is gone")
	tests := map[string]struct {
		run    *worker.Run
		pv     *corev1.PersistentVolume
		kind   shared
		claims bool
		err    string // "" for none
	}{
		"waits": {runAs("u1", claim("missing")), disk(), newShared(), true,
			`mount volume "missing": waiting for PersistentVolumeClaim default/missing`},
		"no claims": {runAs("u1", claim("data")), disk(), newShared(), false,
			`mount volume "data": the volume is a claim, and this agent serves no claims`},
		"a block volume": {device("data"), raw, newShared(), true, ""},
		"block, mounted": {runAs("u1", claim("data")), raw, newShared(), true,
			`mount volume "data": volume data has volumeMode Block, but is specified in volumeMounts`},
		"files, a device": {device("data"), disk(), newShared(), true,
			`mount volume "data": volume data has volumeMode Filesystem, but is specified in volumeDevices`},
		"unknown source": {runAs("u1", claim("data")), &corev1.PersistentVolume{}, newShared(), true,
			`mount volume "data": this agent does not mount the source of PersistentVolume "": ` +
				`use one of hostPath, local, nfs, iscsi, fc, flexVolume or csi`},
		"not a group": {runAs("u1", claim("data")), badGroup, newShared(), true,
			`mount volume "data": the annotation pv.beta.kubernetes.io/gid ` +
				`of PersistentVolume pv is not a group: "staff"`},
		"no stage": {runAs("u1", claim("data")), disk(), failing, true,
			`mount volume "data": stage the volume for the node: the disk is gone`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := volume.Config{Root: root, Kinds: []volume.Kind{test.kind}, Events: events}
			if test.claims {
				c.Claims = bound{test.pv}
			}
			v := volume.New(c)
			err := v.Step().Setup(t.Context(), test.run)
			if test.err == "" && err != nil || test.err != "" && (err == nil || reason.Message(err) != test.err) {
				t.Errorf("got %v, want %q", err, test.err)
			}
			if test.err == "" {
				if d := cmp.Diff(map[string]pod.Volume{"data": {Path: "/dev/null", Block: true, Groups: []int64{2000}}},
					v.Mounted("u1")); d != "" {
					t.Errorf("mounted (-want +got):\n%s", d)
				}
			}
			if err := v.Remove(t.Context(), "u1"); err != nil {
				t.Error(err)
			}
			if left := below(t, root); len(left) > 8 {
				t.Errorf("left: %v", left)
			}
		})
	}
	v, _, _ := node(t)
	if err := v.Step().Setup(t.Context(), empty); err == nil ||
		!strings.Contains(err.Error(), "cannot be a block device") {
		t.Errorf("an emptyDir as a device: %v", err)
	}
}
