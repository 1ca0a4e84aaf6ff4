package source

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/checkpoint"
	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/source/manifest"
	"github.com/berth-run/berth/internal/pod/source/manifest/manifesttest"
)

var web = types.NamespacedName{Namespace: "default", Name: "web"}

func decodeAll(t *testing.T, text string) []manifest.Object {
	t.Helper()
	objects, err := manifest.Decode([]byte(text), "f.yaml")
	must(t, err)
	return objects
}

// apply applies a manifest with one pod.
func (r *rig) apply(text string) Applied {
	r.t.Helper()
	done, err := r.Local.Apply(r.t.Context(), decodeAll(r.t, text)...)
	if err != nil || len(done) != 1 {
		r.t.Fatalf("%d pods, error %v", len(done), err)
	}
	return done[0]
}

func TestApply(t *testing.T) {
	r := start(t, Options{})
	first := r.apply(manifestOf("web", "app:1"))
	r.await([]string{"default/web"})
	if first.Result != Created || first.Pod.Source != pod.SourceLocal || first.Pod.Ephemeral ||
		first.Pod.CreationTimestamp.IsZero() || first.Pod.UID == "" {
		t.Errorf("first: %s, %+v", first.Result, first.Pod)
	}
	if got := r.get("default/web"); got != first.Pod {
		t.Error("the table and Apply have different values")
	}
	if again := r.apply("# the same\n" + manifestOf("web", "app:1")); again.Result != Unchanged ||
		again.Pod != first.Pod {
		t.Errorf("applied again: %s", again.Result)
	}
	image := r.apply(manifestOf("web", "app:latest"))
	if image.Result != Configured || image.Pod.UID != first.Pod.UID || !image.Pod.Seen.Equal(first.Pod.Seen) ||
		image.Pod.Spec.Containers[0].ImagePullPolicy != "Always" {
		t.Errorf("another image: %s, UID %s then %s", image.Result, first.Pod.UID, image.Pod.UID)
	}
	other := r.apply(manifestOf("web", "app:latest") + "  hostNetwork: true\n")
	if other.Result != Replaced || other.Pod.UID == first.Pod.UID {
		t.Errorf("another spec: %s, UID %s then %s", other.Result, first.Pod.UID, other.Pod.UID)
	}
	r.await([]string{"default/web"})

	gone, err := r.Local.Delete(t.Context(), web)
	if err != nil || gone != other.Pod {
		t.Errorf("delete: %v, %v", gone, err)
	}
	r.await(nil)
	if _, err := r.Local.Delete(t.Context(), web); !errors.Is(err, ErrNotFound) ||
		err.Error() != "pod default/web: not found" {
		t.Errorf("second delete: %v", err)
	}
	if back := r.apply(manifestOf("web", "app:1")); back.Result != Created || back.Pod.UID == first.Pod.UID {
		t.Errorf("applied after its end: %s, UID %s then %s", back.Result, first.Pod.UID, back.Pod.UID)
	}
}

// Applied pods keep their UID and time over a restart. Those of a foreground run are gone.
func TestRestart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "applied")
	r := start(t, Options{Applied: dir})
	kept := r.apply(manifestOf("web", "app:1"))
	done, err := r.Local.Run(t.Context(), decodeAll(t, manifestOf("once", "app:1"))...)
	if err != nil || !done[0].Pod.Ephemeral || done[0].Pod.Origin != "berth run" {
		t.Fatalf("run: %+v, %v", done, err)
	}
	r.await([]string{"default/once", "default/web"})
	r.stop()

	r = start(t, Options{Applied: dir})
	r.awaitSynced()
	r.await([]string{"default/web"})
	if diff := cmp.Diff(kept.Pod.Pod, r.get("default/web").Pod); diff != "" {
		t.Errorf("came back as another pod (-was +now):\n%s", diff)
	}
	if again := r.apply(manifestOf("web", "app:1")); again.Result != Unchanged {
		t.Errorf("the same manifest after a restart: %s", again.Result)
	}
}

func TestApplyRefuses(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "static.yaml")
	write(t, path, strings.Replace(manifestOf("static", "a"), "name: static", "name: static, uid: fixed", 1))
	r := start(t, Options{Path: dir})
	r.apply(manifestOf("web", "a"))
	once, err := r.Local.Run(t.Context(), decodeAll(t, manifestOf("once", "a"))...)
	must(t, err)
	names := []string{"default/once", "default/static-node", "default/web"}
	r.await(names)

	call := func(run bool, text string) error {
		objects := decodeAll(t, text)
		if run {
			_, err := r.Local.Run(t.Context(), objects...)
			return err
		}
		_, err := r.Local.Apply(t.Context(), objects...)
		return err
	}
	tests := []struct {
		name, text string
		run        bool
		is         error
		want       string
	}{
		{name: "invalid, with a good one",
			text: docs(manifestOf("good", "a"), manifestOf("bad", "a")+"  restartPolicy: X\n"),
			want: `FailedValidation: f.yaml (document 2): pod default/bad: line 7: spec.restartPolicy: Unsupported ` +
				`value: "X": supported values: "Always", "OnFailure", "Never"`},
		{name: "twice in one call", text: docs(manifestOf("a", "a"), manifestOf("a", "b")),
			want: "FailedValidation: f.yaml (document 2): pod default/a: line 7: the manifest already has a pod " +
				"default/a"},
		{name: "a static pod's name", text: manifestOf("static-node", "a"), is: ErrTaken,
			want: "pod default/static-node already comes from " + path + ": name is taken"},
		{name: "a static pod's UID", text: strings.Replace(manifestOf("x", "a"), "name: x", "name: x, uid: fixed", 1),
			is:   ErrTaken,
			want: "pod default/x has the UID of pod default/static-node, remove metadata.uid: name is taken"},
		{name: "run over applied", text: manifestOf("web", "a"), run: true, is: ErrTaken,
			want: "pod default/web exists already (berth apply), delete it first or choose another name: " +
				"name is taken"},
		{name: "run twice", text: manifestOf("once", "a"), run: true, is: ErrTaken,
			want: "pod default/once exists already (berth run), delete it first or choose another name: " +
				"name is taken"},
		{name: "apply over run", text: manifestOf("once", "a"), is: ErrTaken,
			want: "pod default/once exists already (berth run), delete it first or choose another name: " +
				"name is taken"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := call(tt.run, tt.text)
			if err == nil || err.Error() != tt.want || tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
			if tt.is == nil && reason.Of(err) != reason.FailedValidation {
				t.Errorf("reason %q", reason.Of(err))
			}
		})
	}
	if _, err := r.Local.Delete(t.Context(),
		types.NamespacedName{Namespace: "default", Name: "static-node"}); !errors.Is(err, ErrTaken) ||
		!strings.Contains(err.Error(), "comes from "+path+", remove it there") {
		t.Errorf("delete of a static pod: %v", err)
	}
	r.await(names) // nothing else was applied
	if _, err := r.Local.Delete(t.Context(), once[0].Pod.Key()); err != nil {
		t.Error(err)
	}
	r.await([]string{"default/static-node", "default/web"})
}

func TestApplyOnAFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=16k"); err != nil {
		t.Skipf("mounting a small tmpfs needs root: %v", err)
	}
	t.Cleanup(func() { must(t, syscall.Unmount(dir, 0)) })
	r := start(t, Options{Applied: filepath.Join(dir, "applied")})
	first := r.apply(manifestOf("web", "app:1"))
	large := strings.Replace(manifestOf("web", "app:2"), "name: web",
		"name: web, annotations: {a: "+strings.Repeat("x", 1<<16)+"}", 1)
	done, err := r.Local.Apply(t.Context(), decodeAll(t, large)...)
	if !checkpoint.IsDiskFull(err) || len(done) != 0 {
		t.Errorf("applied %d, error %v", len(done), err)
	}
	r.await([]string{"default/web"})
	if r.get("default/web") != first.Pod {
		t.Error("the pod changed although it could not be saved")
	}
	r.stop() // must end before the unmount
}

func TestDamagedRecords(t *testing.T) {
	dir := t.TempDir()
	disk := checkpoint.NewDir[record](dir, checkpoint.Format{Version: 1})
	good := manifesttest.Decode(t, manifestOf("good", "a"), "f").Pod
	bad := manifesttest.Decode(t, manifestOf("bad", "a"), "f").Pod
	good.UID, bad.UID = "1", "2"
	good.Namespace, bad.Namespace, bad.Spec.RestartPolicy = "default", "default", "X"
	must(t, disk.Save("default/good", record{Seen: time.Unix(1, 0), Pod: good}))
	must(t, disk.Save("default/bad", record{Seen: time.Unix(2, 0), Pod: bad}))
	must(t, disk.Save("default/none", record{}))
	write(t, filepath.Join(dir, "cut.json"), "{")

	r := start(t, Options{Applied: dir})
	r.awaitSynced()
	r.watch.Changes()
	if _, err := r.Local.Delete(t.Context(), types.NamespacedName{Namespace: "default", Name: "none"}); err != nil {
		t.Errorf("delete an invalid record: %v", err)
	}
	r.watch = r.Desired.Watch()
	var cut string
	for key := range r.Problems.Snapshot().All() {
		if strings.Contains(key.Text, "cut.json") {
			cut = key.Text
		}
	}
	if !strings.HasPrefix(cut,
		"state file "+filepath.Join(dir, "cut.json")+" is cut off after 1 bytes; it is kept as cut.json.corrupt-") {
		t.Errorf("problem of the damaged file: %q", cut)
	}
	r.await([]string{"default/good"}, cut,
		`FailedValidation: restore applied pod default/bad: spec.restartPolicy: Unsupported value: "X": supported `+
			`values: "Always", "OnFailure", "Never"; next: apply it again`)
	r.apply(manifestOf("bad", "a"))
	r.await([]string{"default/bad", "default/good"}, cut)
}

// If the stored pods cannot be read at all, Run fails: the tables would be incomplete.
func TestUnreadableRecords(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "applied")
	write(t, dir, "a file where a directory should be")
	s := New(Options{NodeName: "node", Applied: dir})
	err := s.Run(t.Context())
	if err == nil || !strings.HasPrefix(err.Error(), "load applied pods: load state directory: ") {
		t.Errorf("got %v", err)
	}
	if !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("the cause is lost: %v", err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
}
