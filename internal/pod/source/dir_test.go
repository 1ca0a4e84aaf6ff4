package source

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/internal/base/document"
	"github.com/berth-run/berth/internal/model/pod"
)

const (
	webPod = "default/web-node"
	dbPod  = "default/db-node"
)

func TestDirFollowsFiles(t *testing.T) {
	dir := t.TempDir()
	web, db := filepath.Join(dir, "web.yaml"), filepath.Join(dir, "db.json")
	write(t, web, manifestOf("web", "app:1"))
	r := start(t, Options{Path: dir})
	r.awaitSynced()
	r.await([]string{webPod})
	first := r.get(webPod)
	if first.Source != pod.SourceFile || first.Origin != web || first.Seen.IsZero() ||
		first.Annotations[pod.AnnotationConfigSeen] != first.Seen.Format(time.RFC3339Nano) {
		t.Errorf("source %s, origin %s, seen %s, annotations %v", first.Source, first.Origin, first.Seen,
			first.Annotations)
	}

	write(t, db,
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"db"},"spec":{"containers":[{"name":"db",`+
			`"image":"db:1"}]}}`)
	r.await([]string{dbPod, webPod})

	// A changed manifest is a new pod. A changed comment is not.
	write(t, web, "# nothing new\n"+manifestOf("web", "app:1"))
	write(t, db, manifestOf("other", "db:1"))
	r.await([]string{"default/other-node", webPod})
	if r.get(webPod) != first {
		t.Error("a comment made a new pod")
	}
	write(t, web, manifestOf("web", "app:2"))
	if second := r.awaitOther(webPod, first.UID); second.Spec.Containers[0].Image != "app:2" ||
		!second.Seen.After(first.Seen) {
		t.Errorf("after the edit: image %s, seen %s", second.Spec.Containers[0].Image, second.Seen)
	}

	must(t, os.Remove(web))
	r.await([]string{"default/other-node"})
	renamed, was := filepath.Join(dir, "renamed.yaml"), r.get("default/other-node").UID
	must(t, os.Rename(db, renamed))
	if got := r.awaitOther("default/other-node", was).Origin; got != renamed {
		t.Errorf("after the renaming the pod is from %s", got)
	}
}

// Editors and tools replace a file in several ways. None of them may end the pod of the file.
func TestDirSurvivesReplacing(t *testing.T) {
	tests := []struct {
		name    string
		replace func(t *testing.T, path, text string)
	}{
		{"rename over", func(t *testing.T, path, text string) {
			write(t, path+".tmp~", text)
			must(t, os.Rename(path+".tmp~", path))
		}},
		{"move away, then write", func(t *testing.T, path, text string) {
			must(t, os.Rename(path, path+"~"))
			write(t, path, text)
			must(t, os.Remove(path+"~"))
		}},
		{"remove, then write", func(t *testing.T, path, text string) {
			must(t, os.Remove(path))
			write(t, path, text)
		}},
		{"write in place, in pieces", func(t *testing.T, path, text string) {
			f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
			must(t, err)
			for _, piece := range strings.SplitAfter(text, "\n") {
				_, err := f.WriteString(piece)
				must(t, err)
			}
			must(t, f.Close())
		}},
		{"append to nothing, closing each time", func(t *testing.T, path, text string) {
			must(t, os.Truncate(path, 0))
			for _, piece := range strings.SplitAfter(text, "\n") {
				f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
				must(t, err)
				_, err = f.WriteString(piece)
				must(t, err)
				must(t, f.Close())
			}
		}},
		{"directory moved away and back", func(t *testing.T, path, text string) {
			dir := filepath.Dir(path)
			must(t, os.Rename(dir, dir+".old"))
			write(t, filepath.Join(dir+".old", filepath.Base(path)), text)
			must(t, os.Rename(dir+".old", dir))
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "manifests")
			must(t, os.Mkdir(dir, 0o755))
			path := filepath.Join(dir, "web.yaml")
			write(t, path,
				"apiVersion: v1\nkind: Pod\nmetadata: {name: web, uid: fixed}\nspec: {containers: [{name: a, "+
					"image: a}]}\n")
			r := start(t, Options{Path: dir, settle: time.Hour}) // longer than any replacement takes
			r.await([]string{webPod})
			marker := docs(
				"apiVersion: v1\nkind: Pod\nmetadata: {name: web, uid: fixed, labels: {edited: 'true'}}\nspec: "+
					"{containers: [{name: a, image: a}]}\n", manifestOf("marker", "a"))
			tt.replace(t, path, marker)
			r.await([]string{"default/marker-node", webPod})
			if r.get(webPod).Labels["edited"] != "true" {
				t.Error("the edit is missing")
			}
			if len(r.deleted) > 0 {
				t.Errorf("deleted meanwhile: %v", r.deleted)
			}
			if problems := r.reports.all(); len(problems) > 0 {
				t.Errorf("problems reported meanwhile: %v", problems)
			}
		})
	}
}

// A file that cannot be read is reported once, and its pods stay.
func TestDirKeepsTheLastGoodVersion(t *testing.T) {
	dir := t.TempDir()
	web := filepath.Join(dir, "web.yaml")
	write(t, web, docs(manifestOf("web", "app:1"), manifestOf("db", "db:1")))
	r := start(t, Options{Path: dir})
	r.await([]string{dbPod, webPod})

	write(t, web,
		docs(manifestOf("db", "db:1"), "kind: Pod\napiVersion: v1\nmetadata: {name: web}\nspec: {containers: {"))
	broken := "FailedValidation: " + web + " (document 2): line 10: did not find expected node content"
	r.await([]string{dbPod, webPod}, broken)
	write(t, web, docs(manifestOf("db", "db:1"), "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\n"))
	invalid := "FailedValidation: " + web +
		" (document 2): pod default/web-node: line 7: spec.containers: Required value: a pod has at least one"
	r.await([]string{dbPod, webPod}, invalid)
	write(t, web, "")
	empty := web + ": is empty; next: remove it, or give it an empty List if no pod should run"
	r.await([]string{dbPod, webPod}, empty)
	if len(r.deleted) > 0 {
		t.Errorf("deleted: %v", r.deleted)
	}
	write(t, web, manifestOf("web", "app:1"))
	r.await([]string{webPod})
	if diff := cmp.Diff([]string{broken, invalid, empty}, r.reports.all()); diff != "" {
		t.Errorf("reported (-want +got):\n%s", diff)
	}
	must(t, os.Remove(web))
	r.await(nil)
}

// A file that is open for writing is read after its close and not before. A relist meanwhile must not read half of it.
func TestDirWaitsForTheClose(t *testing.T) {
	dir := t.TempDir()
	web := filepath.Join(dir, "web.yaml")
	both := docs(manifestOf("web", "app:1"), manifestOf("db", "db:1"))
	write(t, web, both)
	r := start(t, Options{Path: dir})
	r.await([]string{dbPod, webPod})

	f, err := os.OpenFile(web, os.O_WRONLY|os.O_TRUNC, 0)
	must(t, err)
	_, err = f.WriteString(manifestOf("web", "app:1")) // valid, but a pod is missing
	must(t, err)
	// The new link makes the source read everything. Its pod proves that it has.
	must(t, os.Mkdir(filepath.Join(dir, "..1"), 0o755))
	write(t, filepath.Join(dir, "..1", "x.yaml"), manifestOf("marker", "a"))
	must(t, os.Symlink("..data/x.yaml", filepath.Join(dir, "x.yaml")))
	must(t, os.Symlink("..1", filepath.Join(dir, "..data")))
	r.await([]string{dbPod, "default/marker-node", webPod})
	_, err = f.WriteString("---\n" + manifestOf("third", "a"))
	must(t, err)
	must(t, f.Close())
	r.await([]string{"default/marker-node", "default/third-node", webPod})
}

func TestDirWhatIsNotRead(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside.yaml")
	write(t, outside, manifestOf("outside", "a"))
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	write(t, in(".hidden"), "nonsense")
	write(t, in("backup.yaml~"), "nonsense")
	must(t, os.Mkdir(in("subdirectory"), 0o755))
	write(t, in("subdirectory/web.yaml"), manifestOf("sub", "a"))
	must(t, os.Symlink("subdirectory", in("linked-directory")))
	write(t, in("web.yaml"), manifestOf("web", "a"))
	must(t, os.Symlink(outside, in("absolute.yaml")))
	must(t, os.Symlink("../"+filepath.Base(filepath.Dir(outside))+"/outside.yaml", in("escape.yaml")))
	must(t, os.Symlink("nowhere", in("dangling.yaml")))
	must(t, syscall.Mkfifo(in("pipe.yaml"), 0o644))
	must(t, os.Truncate(func() string { write(t, in("large.yaml"), ""); return in("large.yaml") }(),
		document.MaxSize+1))
	write(t, in("config.yaml"), "apiVersion: v1\nkind: Service\n")

	r := start(t, Options{Path: dir})
	r.awaitSynced()
	r.await([]string{webPod},
		"read manifest "+in("absolute.yaml")+": is a symbolic link to "+outside+
			": only relative links that stay within "+dir+" are followed (path escapes from parent)",
		"read manifest "+in("escape.yaml")+": is a symbolic link to ../"+filepath.Base(filepath.Dir(outside))+
			"/outside.yaml: only relative links that stay within "+dir+" are followed (path escapes from parent)",
		"read manifest "+in("dangling.yaml")+": is a symbolic link to nowhere, which does not exist",
		"read manifest "+in("pipe.yaml")+": is a named pipe, only regular files are read",
		"read manifest "+in("large.yaml")+": is larger than 10 MiB",
		"FailedValidation: "+in("config.yaml")+
			": line 2: kind Service: supported kinds: Pod, ConfigMap, Secret, PersistentVolumeClaim, "+
			"PersistentVolume, RuntimeClass, List",
	)
	for _, name := range []string{"absolute.yaml", "escape.yaml", "dangling.yaml", "pipe.yaml", "large.yaml",
		"config.yaml"} {
		must(t, os.Remove(in(name)))
	}
	r.await([]string{webPod})
}

// A ConfigMap mounted as the directory changes by a single rename of ..data.
func TestDirConfigMapSwap(t *testing.T) {
	dir := t.TempDir()
	version := func(name, text string) {
		must(t, os.Mkdir(filepath.Join(dir, name), 0o755))
		write(t, filepath.Join(dir, name, "web.yaml"), text)
		must(t, os.Symlink(name, filepath.Join(dir, "..data_tmp")))
		must(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	}
	version("..v1", manifestOf("web", "app:1"))
	must(t, os.Symlink("..data/web.yaml", filepath.Join(dir, "web.yaml")))
	r := start(t, Options{Path: dir})
	r.await([]string{webPod})
	version("..v2", docs(manifestOf("web", "app:1"), manifestOf("db", "db:1")))
	r.await([]string{dbPod, webPod})
	if len(r.deleted) > 0 {
		t.Errorf("deleted: %v", r.deleted)
	}
}

func TestDirAppearsLater(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "etc", "berth", "manifests")
	r := start(t, Options{Path: dir})
	r.awaitSynced() // the missing directory has been read
	r.await(nil)
	must(t, os.MkdirAll(dir, 0o755))
	write(t, filepath.Join(dir, "web.yaml"), manifestOf("web", "a"))
	r.await([]string{webPod})
	must(t, os.RemoveAll(filepath.Join(top, "etc")))
	r.await(nil)
	must(t, os.MkdirAll(dir, 0o755))
	write(t, filepath.Join(dir, "db.yaml"), manifestOf("db", "a"))
	r.await([]string{dbPod})
	// Another directory is renamed to its path.
	must(t, os.Rename(dir, dir+".old"))
	must(t, os.Mkdir(dir+".new", 0o755))
	write(t, filepath.Join(dir+".new", "web.yaml"), manifestOf("web", "a"))
	must(t, os.Rename(dir+".new", dir))
	r.await([]string{webPod})
}

func TestDirSingleFile(t *testing.T) {
	top := t.TempDir()
	path, target := filepath.Join(top, "pod.yaml"), filepath.Join(top, "real.yaml")
	r := start(t, Options{Path: path})
	r.awaitSynced()
	write(t, path, manifestOf("web", "a"))
	write(t, target, manifestOf("db", "b"))
	r.await([]string{webPod})
	must(t, os.Remove(path))
	r.await(nil)
	must(t, os.Symlink(target, path)) // the operator's own link may point anywhere
	r.await([]string{dbPod})
	must(t, os.Remove(path))
	must(t, os.Mkdir(path, 0o755))
	write(t, filepath.Join(path, "web.yaml"), manifestOf("web", "a"))
	r.await([]string{webPod})
}

// Without events the relist finds every change.
func TestDirRelistAlone(t *testing.T) {
	dir := t.TempDir()
	r := start(t, Options{Path: dir, Period: 10 * time.Millisecond})
	r.awaitSynced()
	// inotify does not report a change behind a link in a hidden directory.
	must(t, os.Mkdir(filepath.Join(dir, ".real"), 0o755))
	write(t, filepath.Join(dir, ".real", "web.yaml"), manifestOf("web", "a"))
	must(t, os.Symlink(".real/web.yaml", filepath.Join(dir, "web.yaml")))
	r.await([]string{webPod})
	write(t, filepath.Join(dir, ".real", "web.yaml"), manifestOf("db", "a"))
	r.await([]string{dbPod})
}

func TestDirDuplicates(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")
	write(t, b, manifestOf("web", "b"))
	r := start(t, Options{Path: dir})
	r.await([]string{webPod})
	first := r.get(webPod)
	write(t, a, manifestOf("web", "a"))
	r.await([]string{webPod},
		"FailedValidation: "+a+": pod "+webPod+" is already defined by "+b+": rename it, or remove one of the two")
	if r.get(webPod) != first {
		t.Error("the second file replaced the first")
	}
	must(t, os.Remove(b))
	r.await([]string{webPod})
	if got := r.get(webPod).Origin; got != a {
		t.Errorf("after the first is gone the pod is from %s", got)
	}
}

func TestDirUnreadable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "")
	dir := filepath.Join(file, "manifests") // a file in the place of a directory
	r := start(t, Options{Path: dir})
	r.await(nil, "read manifests: stat "+dir+": not a directory")
	if r.synced() {
		t.Error("synced before the directory was read")
	}
}

// BenchmarkDirLatency measures the time from writing a file to its pod in the table.
func BenchmarkDirLatency(b *testing.B) {
	dir := b.TempDir()
	r := start(&testing.T{}, Options{Path: dir, Applied: b.TempDir()})
	defer r.stop()
	path := filepath.Join(dir, "web.yaml")
	r.awaitSynced()
	texts := [][]byte{[]byte(manifestOf("web", "a")), []byte(manifestOf("web", "b"))}
	i := 0
	for b.Loop() {
		if err := os.WriteFile(path, texts[i%2], 0o644); err != nil {
			b.Fatal(err)
		}
		for want := []string{"a", "b"}[i%2]; ; {
			<-r.watch.C()
			changes := r.watch.Changes()
			if last := changes[len(changes)-1]; !last.Deleted && last.Value.Spec.Containers[0].Image == want {
				break
			}
		}
		i++
	}
}
