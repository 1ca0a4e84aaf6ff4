package source

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/pod/source/manifest"
)

// configMap returns a ConfigMap with one key.
func configMap(name, value, more string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\ndata: {key: '" + value + "'}\n" + more
}

var appConfig = object.Key{Kind: object.ConfigMap, Namespace: "default", Name: "app"}

// awaitValue waits until a ConfigMap has that value for its key. An empty value waits for its removal.
func (r *rig) awaitValue(key object.Key, want string) *corev1.ConfigMap {
	r.t.Helper()
	w := r.Objects.WatchKey(key)
	defer w.Stop()
	for timeout := time.After(patience); ; {
		row, ok := r.Objects.Get(key)
		m, _ := row.(*corev1.ConfigMap)
		if !ok && want == "" || ok && m.Data["key"] == want {
			return m
		}
		select {
		case <-w.C():
			w.Changes()
		case <-timeout:
			r.t.Fatalf("%s is %v, want %q", key, row, want)
		}
	}
}

func (r *rig) applyAll(text string) ([]Applied, error) {
	r.t.Helper()
	objects, err := manifest.Decode([]byte(text), "-")
	must(r.t, err)
	return r.Local.Apply(r.t.Context(), objects...)
}

// Objects of a directory follow their files, in any order and in lists. If two files define an object, the first one
// counts.
func TestObjectsOfDirectory(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	write(t, file("all.yaml"),
		"apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Secret\n  metadata: {name: s}\n  stringData: "+
			"{key: hidden}\n"+
			"- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: app, namespace: other}\n  data: {key: x}\n---\n"+
			manifestOf("web", "a")+"---\n"+configMap("app", "one", ""))
	r := start(t, Options{Path: dir})
	r.awaitSynced()
	r.await([]string{webPod})
	first := r.awaitValue(appConfig, "one")
	if first.UID == "" || first.CreationTimestamp.IsZero() || first.Kind != "ConfigMap" {
		t.Errorf("the object is not complete: %+v", first)
	}
	row, _ := r.Objects.Get(object.Key{Kind: object.Secret, Namespace: "default", Name: "s"})
	secret, _ := row.(*corev1.Secret)
	if string(secret.Data["key"]) != "hidden" || secret.StringData != nil || secret.Type != corev1.SecretTypeOpaque {
		t.Errorf("the Secret is %+v", secret)
	}

	write(t, file("again.yaml"), configMap("app", "two", ""))
	taken := "FailedValidation: " + file("again.yaml") + ": ConfigMap default/app is already defined by " +
		file("all.yaml") + ": rename it, or remove one of the two"
	r.await([]string{webPod}, taken)
	write(t, file("all.yaml"), configMap("app", "changed", ""))
	if now := r.awaitValue(appConfig, "changed"); now.UID != first.UID || now == first {
		t.Errorf("UID after an edit is %s, was %s", now.UID, first.UID)
	}
	must(t, os.Remove(file("all.yaml")))
	r.awaitValue(appConfig, "two")
	must(t, os.Remove(file("again.yaml")))
	r.awaitValue(appConfig, "")
	r.await(nil)
}

// An immutable object stays unchanged. The problem lasts until the file has the old content again.
func TestImmutableObject(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "app.yaml")
	write(t, file, configMap("app", "one", "immutable: true\n"))
	r := start(t, Options{Path: dir})
	r.awaitValue(appConfig, "one")
	write(t, file, configMap("app", "two", "immutable: true\n"))
	r.await(nil,
		"FailedValidation: "+file+
			": ConfigMap default/app: data: Forbidden: field is immutable when `immutable` is set; the old version "+
			"stays; next: delete it, then add it again")
	r.awaitValue(appConfig, "one")
	write(t, file, configMap("app", "one", "immutable: true\n"))
	r.await(nil)
	must(t, os.Remove(file))
	r.awaitValue(appConfig, "")
	write(t, file, configMap("app", "two", ""))
	r.awaitValue(appConfig, "two")
}

// If a file becomes half invalid, the objects of the invalid half stay.
func TestObjectsOfFaultyFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "app.yaml")
	write(t, file, docs(configMap("app", "one", ""), configMap("other", "x", "")))
	r := start(t, Options{Path: dir})
	r.awaitValue(appConfig, "one")
	write(t, file, docs(configMap("app", "two", ""), configMap("other", "x", "immutable: maybe\n")))
	r.awaitValue(appConfig, "two")
	r.await(nil,
		"FailedValidation: "+file+
			" (document 2): ConfigMap default/other: line 10: immutable: wants true or false, got \"maybe\"")
	r.awaitValue(object.Key{Kind: object.ConfigMap, Namespace: "default", Name: "other"}, "x")
}

// Applied objects survive a restart. Only the owner can read their files.
func TestAppliedObjects(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "applied")
	r := start(t, Options{Applied: dir})
	done, err := r.applyAll(docs(configMap("app", "one", "immutable: true\n"), manifestOf("web", "a")))
	must(t, err)
	if done[0].Result != Created || done[0].Object.GetUID() == "" || done[1].Pod == nil {
		t.Errorf("applied %+v", done)
	}
	r.stop()
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		info, _ := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	})
	must(t, err)

	r = start(t, Options{Applied: dir})
	if back := r.awaitValue(appConfig, "one"); back.UID != done[0].Object.GetUID() {
		t.Errorf("UID after a restart is %s, was %s", back.UID, done[0].Object.GetUID())
	}
	if again, err := r.applyAll(configMap("app", "one", "immutable: true\n")); err != nil ||
		again[0].Result != Unchanged {
		t.Errorf("applied again: %+v, %v", again, err)
	}
	_, err = r.applyAll(docs(configMap("new", "x", ""), configMap("app", "two", "immutable: true\n")))
	if err == nil || !strings.Contains(err.Error(), "ConfigMap default/app: data: Forbidden") {
		t.Errorf("changed an immutable object: %v", err)
	}
	r.awaitValue(object.Key{Kind: object.ConfigMap, Namespace: "default", Name: "new"}, "") // nothing was applied
	must(t, r.Local.DeleteObject(t.Context(), appConfig))
	r.awaitValue(appConfig, "")
	if err := r.Local.DeleteObject(t.Context(), appConfig); !errors.Is(err, ErrNotFound) {
		t.Errorf("deleted twice: %v", err)
	}
	if changed, err := r.applyAll(configMap("app", "two", "")); err != nil || changed[0].Result != Created {
		t.Errorf("applied after its end: %+v, %v", changed, err)
	}
	r.stop()
	r = start(t, Options{Applied: dir})
	r.awaitValue(appConfig, "two")
}

// A damaged record is a problem, and the other objects are restored.
func TestDamagedObject(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "applied")
	r := start(t, Options{Applied: dir})
	_, err := r.applyAll(docs(configMap("app", "one", ""), configMap("bad", "x", "")))
	must(t, err)
	r.stop()
	found, err := filepath.Glob(filepath.Join(dir, "objects", "*bad*"))
	if err != nil || len(found) != 1 {
		t.Fatalf("%v, %v", found, err)
	}
	write(t, found[0], "{")
	r = start(t, Options{Applied: dir})
	r.awaitValue(appConfig, "one")
	for timeout := time.After(patience); len(r.problems) != 1; r.catchUp() {
		select {
		case <-r.err.C():
		case <-timeout:
			t.Fatalf("problems: %v", r.problems)
		}
	}
}

// Apply cannot change an object of a file, and a file cannot change an applied object.
func TestObjectIsTaken(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "app.yaml"), configMap("app", "one", ""))
	r := start(t, Options{Path: dir})
	r.awaitValue(appConfig, "one")
	if _, err := r.applyAll(configMap("app", "two", "")); !errors.Is(err, ErrTaken) {
		t.Errorf("apply: %v", err)
	}
	if err := r.Local.DeleteObject(t.Context(), appConfig); !errors.Is(err, ErrTaken) {
		t.Errorf("delete: %v", err)
	}
}

// A pod gets the overhead of its RuntimeClass when the class is created. Until the pod is admitted, it follows changes
// of the class.
func TestRuntimeClass(t *testing.T) {
	class := func(cpu string) string {
		return "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: vm}\nhandler: vm\noverhead: " +
			"{podFixed: {cpu: " + cpu + "}}\nscheduling: {nodeSelector: {vm: 'yes'}}\n"
	}
	for _, c := range []struct {
		name  string
		taken bool
		want  []string // without the class, with 250m, with 1, without again
	}{
		{"taken on", true, []string{"0", "250m", "250m", "250m"}},
		{"waits", false, []string{"0", "250m", "1", "0"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := start(t, Options{Node: admitted(c.taken)})
			_, err := r.applyAll(strings.Replace(manifestOf("web", "a"), "spec:", "spec:\n  runtimeClassName: vm", 1))
			must(t, err)
			r.await([]string{"default/web"})
			overhead := func() string { return r.get("default/web").Spec.Overhead.Cpu().String() }
			got := []string{overhead()}
			for _, cpu := range []string{"250m", "1"} {
				_, err = r.applyAll(class(cpu))
				must(t, err)
				r.catchUp()
				got = append(got, overhead())
				if vm := r.get("default/web").Spec.NodeSelector["vm"]; vm != "yes" {
					t.Errorf("class with %s: node selector vm=%q", cpu, vm)
				}
			}
			must(t, r.Local.DeleteObject(t.Context(), object.Key{Kind: object.RuntimeClass, Name: "vm"}))
			r.catchUp()
			got = append(got, overhead())
			if !slices.Equal(got, c.want) {
				t.Errorf("overhead %v, want %v", got, c.want)
			}
		})
	}
}
