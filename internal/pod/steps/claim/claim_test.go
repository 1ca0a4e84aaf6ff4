package claim

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/model/object"
)

type silent struct{}

func (silent) Event(corev1.ObjectReference, string, string, string, ...any) {}

// machine is a node where agents start and end.
type machine struct {
	root    string
	objects *object.Table
	fate    object.Fate // of claims that are not there
	now     time.Time
}

func newMachine(t *testing.T, values ...object.Value) *machine {
	m := &machine{root: t.TempDir(), objects: store.New[object.Key, runtime.Object](),
		now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	for _, v := range values {
		m.objects.Put(object.KeyOf(v), v)
	}
	return m
}

// retention is how long a machine keeps the volume of a deleted claim.
const retention = time.Hour

func (*machine) Origin(object.Key) (object.Origin, bool) {
	return object.Origin{Path: "/m/c.yaml"}, true
}

func (m *machine) Fate(object.Origin) object.Fate { return m.fate }

func (*machine) OriginsChanged() <-chan struct{} { return nil }

// DeleteObject deletes a claim of "berth apply".
func (m *machine) DeleteObject(_ context.Context, key object.Key) error {
	if _, ok := m.objects.Get(key); !ok {
		return errNotFound
	}
	m.objects.Delete(key)
	return nil
}

var errNotFound = errors.New("not found")

func (m *machine) ObjectsChanged(map[object.Key]bool) {}

// agent starts an agent with the files that the previous one left on disk.
func (m *machine) agent(t *testing.T) *Claims {
	t.Helper()
	synced := make(chan struct{})
	close(synced)
	c := New(Config{
		Root: m.root, Objects: m.objects, Synced: synced, Origins: m, Retention: retention, Node: node,
		Pods: m, Events: silent{}, Now: func() time.Time {
			return m.now
		}, Log: slog.New(slog.DiscardHandler),
	})
	if err := c.Load(); err != nil {
		t.Fatal(err)
	}
	return c
}

func newPod(uid types.UID) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod", UID: uid}}
}

func use(t *testing.T, c *Claims, uid types.UID, v corev1.VolumeSource) *corev1.PersistentVolume {
	t.Helper()
	bound, err := c.Bound(t.Context(), newPod(uid), &corev1.Volume{Name: "data", VolumeSource: v})
	if err != nil {
		t.Fatal(err)
	}
	return bound
}

func claimed(name string) corev1.VolumeSource {
	return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}
}

// exists reports whether a file exists.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestBindingsOutliveTheAgent(t *testing.T) {
	m := newMachine(t, newClaim("c"), newVolume("b", "2Gi"))
	if v := use(t, m.agent(t), "u1", claimed("c")); v.Name != "b" {
		t.Fatalf("bound to %s", v.Name)
	}
	better := newVolume("a", "1Gi")
	m.objects.Put(object.KeyOf(better), better)
	if v := use(t, m.agent(t), "u2", claimed("c")); v.Name != "b" {
		t.Errorf("after a restart it is bound to %s", v.Name)
	}
}

// A killed agent leaves a binding without its directory, or a directory that is not open to the pod yet.
func TestBoundFinishesTheDirectoryOfAKilledAgent(t *testing.T) {
	for _, stage := range []string{"before the directory", "before its mode"} {
		t.Run(stage, func(t *testing.T) {
			m := newMachine(t, newClaim("c"))
			first := use(t, m.agent(t), "u1", claimed("c"))
			dir := first.Spec.Local.Path
			if err := os.Remove(dir); err != nil {
				t.Fatal(err)
			}
			if stage == "before its mode" {
				if err := os.Mkdir(dir, 0o750); err != nil {
					t.Fatal(err)
				}
			}
			again := use(t, m.agent(t), "u1", claimed("c"))
			info, err := os.Stat(dir)
			if err != nil || again.Name != first.Name || info.Mode().Perm() != 0o777 {
				t.Errorf("%v, %v, %s is not %s", info, err, again.Name, first.Name)
			}
		})
	}
}

// The agent removes a volume when a user has deleted its claim, no pod uses it and the retention is over. All this
// outlives the agent.
func TestReclaimNeedsADeletion(t *testing.T) {
	claim := newClaim("c")
	m := newMachine(t, claim)
	c := m.agent(t)
	dir := use(t, c, "u1", claimed("c")).Spec.Local.Path
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	there := func(want bool, removal, when string) {
		t.Helper()
		c = m.agent(t)
		passed(t, c)
		if exists(dir) != want {
			t.Fatalf("%s: the volume is there: %t", when, !want)
		}
		rows, _ := c.Rows()
		for _, row := range rows {
			if v, ok := row.(*corev1.PersistentVolume); ok && v.Annotations[object.AnnotationRemoval] != removal {
				t.Errorf("%s: its removal is at %q, want %q", when, v.Annotations[object.AnnotationRemoval], removal)
			}
		}
	}
	m.objects.Delete(object.KeyOf(claim))
	there(true, "", "while a pod uses it")
	if v := use(t, c, "u1", claimed("c")); v.Spec.Local.Path != dir {
		t.Errorf("its pod finds %s", v.Spec.Local.Path)
	}
	if err := c.Released("u1"); err != nil {
		t.Fatal(err)
	}
	for _, unknown := range []object.Fate{object.Untraced, object.Present, object.Unsure} {
		m.fate = unknown
		there(true, "", "while nobody knows")
		m.now = m.now.Add(2 * retention)
		there(true, "", "after a long time")
	}
	m.fate = object.Removed
	removal := m.now.Add(retention).Format(time.RFC3339)
	there(true, removal, "after the removal of its manifest")
	m.now = m.now.Add(retention - time.Second)
	m.fate = object.Untraced
	there(true, removal, "with a second left")
	m.now = m.now.Add(time.Second)
	m.fate = object.Unsure
	there(true, removal, "while a faulty manifest may have the claim")
	m.fate = object.Present
	there(true, "", "when the manifest is back")
	m.fate = object.Removed
	there(true, m.now.Add(retention).Format(time.RFC3339), "after the second removal")
	m.now = m.now.Add(retention)
	there(false, "", "then")
	if rows, _ := c.Rows(); len(rows) != 0 {
		t.Errorf("still shown: %v", rows)
	}
}

func TestDeleteMarksTheVolumeOfAClaim(t *testing.T) {
	claim := newClaim("c")
	name := nameOf(claim)
	for _, tt := range []struct {
		name  string
		first func(m *machine)
	}{
		{"there", func(*machine) {}},
		{"not seen", func(m *machine) { m.objects.Delete(object.KeyOf(claim)) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachine(t, claim)
			c := m.agent(t)
			dir := use(t, c, "u1", claimed("c")).Spec.Local.Path
			if err := c.Released("u1"); err != nil {
				t.Fatal(err)
			}
			tt.first(m)
			passed(t, c)
			_, seen := m.objects.Get(object.KeyOf(claim))
			bare, err := c.Delete(t.Context(), name, m)
			if bare == seen || seen && err != nil || !seen && !errors.Is(err, errNotFound) {
				t.Fatalf("the claim was there: %t; bare %t, error %v", seen, bare, err)
			}
			c = m.agent(t)
			passed(t, c)
			// The claim is created again, and gets its data.
			m.now = m.now.Add(retention / 2)
			m.objects.Put(object.KeyOf(claim), claim)
			if again := use(t, c, "u2", claimed("c")); again.Spec.Local.Path != dir {
				t.Errorf("the new claim has %s", again.Spec.Local.Path)
			}
			passed(t, c)
			if err := c.Released("u2"); err != nil {
				t.Fatal(err)
			}
			if _, err = c.Delete(t.Context(), name, m); err != nil {
				t.Fatal(err)
			}
			passed(t, c)
			m.now = m.now.Add(retention - time.Second)
			passed(t, c)
			if !exists(dir) {
				t.Fatal("removed before the retention of the second deletion was over")
			}
			m.now = m.now.Add(time.Second)
			passed(t, c)
			if exists(dir) {
				t.Error("still there")
			}
		})
	}
}

// taken refuses to delete a claim, as for a claim of a file.
type taken struct{ error }

func (r taken) DeleteObject(context.Context, object.Key) error { return r.error }

func TestDeleteOfAFilesClaimChangesNothing(t *testing.T) {
	claim := newClaim("c")
	m := newMachine(t, claim)
	c := m.agent(t)
	use(t, c, "u1", claimed("c"))
	refused := errors.New("it comes from a file")
	if _, err := c.Delete(t.Context(), nameOf(claim), taken{refused}); !errors.Is(err, refused) {
		t.Fatal(err)
	}
	if b := c.bindings[nameOf(claim)]; b.Deleted != nil || b.Origin == nil {
		t.Errorf("the binding is %+v", b)
	}
}

// An agent was killed between the mark and the deletion.
func TestMarkOfAnExistingClaimIsWithdrawn(t *testing.T) {
	claim := newClaim("c")
	m := newMachine(t, claim)
	c := m.agent(t)
	use(t, c, "u1", claimed("c"))
	if _, err := c.mark(nameOf(claim)); err != nil {
		t.Fatal(err)
	}
	c = m.agent(t)
	passed(t, c)
	if b := c.bindings[nameOf(claim)]; b.Deleted != nil {
		t.Errorf("the binding is %+v", b)
	}
}

func TestRetainKeepsTheVolume(t *testing.T) {
	claim := newClaim("c", func(c *corev1.PersistentVolumeClaim) {
		c.Annotations = map[string]string{AnnotationReclaim: "Retain"}
	})
	m := newMachine(t, claim)
	c := m.agent(t)
	v := use(t, c, "u1", claimed("c"))
	if err := c.Released("u1"); err != nil {
		t.Fatal(err)
	}
	m.objects.Delete(object.KeyOf(claim))
	m.fate = object.Removed
	passed(t, c)
	m.now = m.now.Add(2 * retention)
	passed(t, c)
	rows, _ := c.Rows()
	shown, _ := rows[object.KeyOf(v)].(*corev1.PersistentVolume)
	if !exists(v.Spec.Local.Path) || shown == nil || shown.Status.Phase != corev1.VolumeReleased {
		t.Fatalf("the volume is shown as %v", shown)
	}
	m.objects.Put(object.KeyOf(claim), claim)
	if again := use(t, c, "u2", claimed("c")); again.Name != v.Name {
		t.Errorf("the claim that came back has %s", again.Name)
	}
}

func TestReadWriteOncePodHasOneUser(t *testing.T) {
	claim := newClaim("c", func(c *corev1.PersistentVolumeClaim) {
		c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
	})
	m := newMachine(t, claim)
	use(t, m.agent(t), "u1", claimed("c"))
	c := m.agent(t)
	_, err := c.Bound(t.Context(), newPod("u2"), &corev1.Volume{VolumeSource: claimed("c")})
	if _, only := object.Waits(err); !only {
		t.Fatalf("another pod: %v", err)
	}
	use(t, c, "u1", claimed("c"))
	if err := c.Released("u1"); err != nil {
		t.Fatal(err)
	}
	use(t, c, "u2", claimed("c"))
}

func TestEphemeralVolumeBelongsToItsPod(t *testing.T) {
	source := corev1.VolumeSource{
		Ephemeral: &corev1.EphemeralVolumeSource{
			VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: newClaim("").Spec}}}
	m := newMachine(t, newVolume("stays", "1Gi"))
	c := m.agent(t)
	dir := use(t, c, "u1", source).Spec.Local.Path
	rows, _ := c.Rows()
	shown, _ := rows[keyOf(types.NamespacedName{Namespace: "default",
		Name: "pod-data"})].(*corev1.PersistentVolumeClaim)
	if shown == nil || shown.Status.Phase != corev1.ClaimBound || !metav1.IsControlledBy(shown, newPod("u1")) {
		t.Errorf("the claim is shown as %v", shown)
	}
	// The next pod of the same name waits for the end of this one.
	if _, err := c.Bound(t.Context(), newPod("u2"), &corev1.Volume{Name: "data", VolumeSource: source}); err == nil {
		t.Error("another pod has it too")
	}
	if err := c.Released("u1"); err != nil {
		t.Fatal(err)
	}
	passed(t, c)
	if exists(dir) {
		t.Error("it outlived its pod")
	}
	use(t, c, "u2", source)
}

func TestBoundNamesTheMissingObject(t *testing.T) {
	c := newMachine(t, newClaim("c", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "none" })).agent(t)
	for name, want := range map[string]string{"none": "waiting for PersistentVolumeClaim default/none",
		"c": "waiting for PersistentVolume none"} {
		_, err := c.Bound(t.Context(), newPod("u1"), &corev1.Volume{VolumeSource: claimed(name)})
		if missing, ok := errors.AsType[*object.Missing](err); !ok || missing.Error() != want {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// passed makes a pass and waits for the removals that it starts.
func passed(t *testing.T, c *Claims) time.Time {
	t.Helper()
	next := c.pass(t.Context())
	c.removals.Wait()
	return next
}

// waiting are pods that wait for claims. It passes on the keys of changed ones.
type waiting chan map[object.Key]bool

func (w waiting) ObjectsChanged(keys map[object.Key]bool) { w <- keys }

func TestRunWakesPodsWhenAVolumeAppears(t *testing.T) {
	claim := newClaim("c", class(""))
	m := newMachine(t, claim)
	c := m.agent(t)
	woken := make(chan map[object.Key]bool, 1)
	c.cfg.Pods = waiting(woken)
	if _, err := c.Bound(t.Context(), newPod("u1"), &corev1.Volume{VolumeSource: claimed("c")}); err == nil {
		t.Fatal("bound to nothing")
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	v := newVolume("v", "1Gi")
	m.objects.Put(object.KeyOf(v), v)
	if keys := <-woken; !keys[object.KeyOf(claim)] {
		t.Errorf("woken for %v", keys)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if bound := use(t, c, "u1", claimed("c")); bound.Name != "v" {
		t.Errorf("bound to %s", bound.Name)
	}
}
