package payload

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/roottest"
)

// memory is a directory in memory until the test ends.
func memory(t *testing.T) string {
	t.Helper()
	roottest.Need(t, "mounting")
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// look describes everything in a volume. VERSION stands for the name of a version.
func look(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		info, err := d.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		text := fmt.Sprintf("%o %d:%d", st.Mode&0o7777, st.Uid, st.Gid)
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			target, _ := os.Readlink(path)
			text = "-> " + target
		case info.IsDir():
			text += " dir"
		default:
			content, _ := os.ReadFile(path)
			text += " " + string(content)
		}
		found[anonymous(rel)] = anonymous(text)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func anonymous(s string) string {
	parts := strings.Split(s, "/")
	for i, p := range parts {
		if _, ok := versionTime(strings.TrimPrefix(p, "-> ")); ok {
			parts[i] = strings.TrimSuffix(p, strings.TrimPrefix(p, "-> ")) + "VERSION"
		}
	}
	return strings.Join(parts, "/")
}

func text(s string, mode int32) File { return File{Data: []byte(s), Mode: mode} }

func TestWrite(t *testing.T) {
	dir := memory(t)
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	w := writer{path: dir, memory: true, now: time.Now()}
	write := func(want bool, files Files) {
		t.Helper()
		if changed, err := w.write(t.Context(), files); err != nil || changed != want {
			t.Fatalf("changed %v, %v, want %v", changed, err, want)
		}
	}
	files := Files{"app": text("one", 0o644), "etc/deep/x": {Data: []byte("two"), Mode: 0o400, User: new(int64(1000))}}
	write(true, files)
	want := map[string]string{
		"VERSION": "755 0:0 dir", "VERSION/app": "644 0:0 one", "VERSION/etc": "755 0:0 dir",
		"VERSION/etc/deep": "755 0:0 dir", "VERSION/etc/deep/x": "400 1000:0 two",
		"..data": "-> VERSION", "app": "-> ..data/app", "etc": "-> ..data/etc",
	}
	if d := cmp.Diff(want, look(t, dir)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	version, _ := os.Readlink(filepath.Join(dir, "..data"))
	write(false, files)
	if again, _ := os.Readlink(filepath.Join(dir, "..data")); again != version {
		t.Error("what had not changed was written anew")
	}
	// One path is removed, one is added, one becomes a directory, and all get a group.
	w.owner = owner{new(int64(4711))}
	w.now = w.now.Add(time.Minute)
	write(true, Files{"etc": text("three", 0o600), "app/new": text("", 0o400)})
	write(false, Files{"etc": text("three", 0o600), "app/new": text("", 0o400)})
	w.now = w.now.Add(grace)
	write(false, Files{"etc": text("three", 0o600), "app/new": text("", 0o400)})
	want = map[string]string{
		"VERSION": "2755 0:4711 dir", "VERSION/etc": "640 0:4711 three", "VERSION/app": "2755 0:4711 dir",
		"VERSION/app/new": "440 0:4711 ",
		"..data":          "-> VERSION", "app": "-> ..data/app", "etc": "-> ..data/etc",
	}
	if d := cmp.Diff(want, look(t, dir)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	write(true, nil)
	if d := cmp.Diff(map[string]string{"VERSION": "2755 0:4711 dir", "..data": "-> VERSION"}, look(t, dir)); d != "" {
		t.Errorf("nothing (-want +got):\n%s", d)
	}
}

// The volume contains other entries, left by a killed agent or put there by another program.
func TestWriteRepairs(t *testing.T) {
	for name, spoil := range map[string]func(dir, version string) error{
		"a version and a link that were not finished": func(dir, _ string) error {
			return errors.Join(os.MkdirAll(filepath.Join(dir, "..2020_01_02_15_04_05.000000001/half"), 0o700),
				os.Symlink("..2020_01_02_15_04_05.000000001", filepath.Join(dir, "..data_tmp")))
		},
		"links that were not made": func(dir, _ string) error { return os.Remove(filepath.Join(dir, "app")) },
		"links that were not gone": func(dir, _ string) error {
			return os.Symlink("..data/old", filepath.Join(dir, "old"))
		},
		"a link to elsewhere": func(dir, _ string) error {
			return relink(filepath.Join(dir, "app"), "/etc/passwd")
		},
		"data that leads elsewhere":  func(dir, _ string) error { return relink(filepath.Join(dir, "..data"), "/etc") },
		"data that leads to nothing": func(_, version string) error { return os.RemoveAll(version) },
		"a file more": func(_, version string) error {
			return os.WriteFile(filepath.Join(version, "more"), nil, 0o600)
		},
		"a directory more": func(_, version string) error { return os.Mkdir(filepath.Join(version, "more"), 0o700) },
		"a file less":      func(_, version string) error { return os.Remove(filepath.Join(version, "app")) },
		"another mode":     func(_, version string) error { return os.Chmod(filepath.Join(version, "app"), 0o666) },
		"another owner":    func(_, version string) error { return os.Chown(filepath.Join(version, "app"), 7, 7) },
		"a link for a file": func(_, version string) error {
			return relink(filepath.Join(version, "app"), "/etc/passwd")
		},
		"a pipe for a file": func(_, version string) error {
			return errors.Join(os.Remove(filepath.Join(version, "app")),
				unix.Mkfifo(filepath.Join(version, "app"), 0o644))
		},
		"a link for a directory": func(_, version string) error {
			return errors.Join(os.RemoveAll(filepath.Join(version, "etc")),
				os.Symlink("/etc", filepath.Join(version, "etc")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := memory(t)
			now := time.Now().Add(-time.Hour)
			files := Files{"app": text("one", 0o644), "etc/x": text("two", 0o644)}
			if _, err := (&writer{path: dir, now: now}).write(t.Context(), files); err != nil {
				t.Fatal(err)
			}
			want := look(t, dir)
			version, err := filepath.EvalSymlinks(filepath.Join(dir, "..data"))
			if err := errors.Join(err, spoil(dir, version)); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if _, err := (&writer{path: dir, now: now.Add(time.Minute)}).write(t.Context(), files); err != nil {
					t.Fatal(err)
				}
			}
			if d := cmp.Diff(want, look(t, dir)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func relink(name, target string) error { return errors.Join(os.Remove(name), os.Symlink(target, name)) }

// A directory of the same name stays: another volume is mounted there.
func TestWriteKeepsMountPoints(t *testing.T) {
	dir := memory(t)
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "app"), 0o755),
		os.Mkdir(filepath.Join(dir, "run"), 0o755)); err != nil {
		t.Fatal(err)
	}
	if _, err := (&writer{path: dir, now: time.Now()}).write(t.Context(),
		Files{"app": text("one", 0o644)}); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"VERSION": "755 0:0 dir", "VERSION/app": "644 0:0 one", "..data": "-> VERSION",
		"app": "755 0:0 dir", "run": "755 0:0 dir"}
	if d := cmp.Diff(want, look(t, dir)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestWriteRefuses(t *testing.T) {
	dir := memory(t)
	disk := t.TempDir()
	for name, test := range map[string]struct {
		w     writer
		files Files
		err   string
	}{
		"a bad path": {writer{path: dir}, Files{"../x": {}}, "must not contain '..'"},
		"a disk":     {writer{path: disk, memory: true}, Files{"x": {}}, "is not in memory"},
		"no volume":  {writer{path: filepath.Join(dir, "none")}, Files{"x": {}}, "no such file"},
		"a full disk": {writer{path: dir}, Files{"a": text("x", 0o644), "b": text(strings.Repeat("x", 8<<20), 0o644)},
			"no space left"},
	} {
		t.Run(name, func(t *testing.T) {
			test.w.now = time.Now()
			if _, err := test.w.write(t.Context(), test.files); !says(err, test.err) {
				t.Errorf("got %v", err)
			}
		})
	}
	for _, d := range []string{dir, disk} {
		if left := look(t, d); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
}

// generation is a volume whose files all have the same content.
func generation(n int) Files {
	files := Files{}
	for i := range 4 {
		files[fmt.Sprintf("d%d/f%d", i%2, i)] = text(strings.Repeat(fmt.Sprintf("%08d", n), 600), 0o644)
	}
	files["top"] = text(fmt.Sprintf("%08d", n), 0o644)
	return files
}

// readGeneration reads one version of a volume. It fails if a file is incomplete or belongs to another generation.
func readGeneration(dir string) (string, error) {
	root, err := os.OpenRoot(filepath.Join(dir, "..data"))
	if err != nil {
		return "", err
	}
	defer func() { _ = root.Close() }()
	top, err := root.ReadFile("top")
	if err != nil {
		return "", err
	}
	for i := range 4 {
		content, err := root.ReadFile(fmt.Sprintf("d%d/f%d", i%2, i))
		if err != nil {
			return "", err
		}
		if string(content) != strings.Repeat(string(top), 600) {
			return "", fmt.Errorf("file %d is of another version than %s, or half of one: %d bytes, %.8q", i, top,
				len(content), content)
		}
	}
	return string(top), nil
}

func TestReadersSeeWholeVersions(t *testing.T) {
	dir := memory(t)
	now := time.Now()
	if _, err := (&writer{path: dir, now: now}).write(t.Context(), generation(0)); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	type result struct {
		reads int
		seen  map[string]bool
		err   error
	}
	results := make(chan result)
	go func() {
		r := result{seen: map[string]bool{}}
		for ctx.Err() == nil && r.err == nil {
			var at string
			at, r.err = readGeneration(dir)
			r.seen[at] = true
			if _, err := os.ReadFile(filepath.Join(dir, "d1/f3")); err != nil {
				r.err = err
			}
			r.reads++
		}
		results <- r
	}()
	for n := range 1000 {
		now = now.Add(10 * time.Millisecond)
		if changed, err := (&writer{path: dir, now: now}).write(t.Context(), generation(n+1)); err != nil || !changed {
			t.Fatalf("%v, %v", changed, err)
		}
	}
	stop()
	r := <-results
	t.Logf("%d reads, %d versions seen", r.reads, len(r.seen))
	if r.err != nil || len(r.seen) < 3 {
		t.Errorf("%v; %d versions seen", r.err, len(r.seen))
	}
	if _, err := (&writer{path: dir, now: now.Add(grace)}).write(t.Context(), generation(1000)); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "..2*")); len(left) != 1 {
		t.Errorf("%d versions left", len(left))
	}
}

const killedDir = "PAYLOAD_TEST_WRITE_TO"

// A process is killed at random moments while it writes.
func TestKilledWriteLeavesAWholeVersion(t *testing.T) {
	if dir := os.Getenv(killedDir); dir != "" {
		for n := 0; ; n++ { // until it is killed
			if _, err := (&writer{path: dir, now: time.Now().Add(time.Duration(n) * grace)}).write(t.Context(),
				generation(n)); err != nil {
				fmt.Println(err)
				os.Exit(1)
			}
			if n == 0 {
				fmt.Println("begun")
			}
		}
	}
	dir := memory(t)
	for round := range 40 {
		process := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilledWriteLeavesAWholeVersion$")
		process.Env = append(os.Environ(), killedDir+"="+dir)
		out, err := process.StdoutPipe()
		if err := errors.Join(err, process.Start()); err != nil {
			t.Fatal(err)
		}
		begun := make([]byte, 6)
		if _, err := out.Read(begun); err != nil || string(begun) != "begun\n" {
			t.Fatalf("%q, %v", begun, err)
		}
		time.Sleep(time.Duration(round) * 137 * time.Microsecond)
		_ = process.Process.Kill()
		_ = process.Wait()
		if _, err := readGeneration(dir); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
	if _, err := (&writer{path: dir, now: time.Now().Add(time.Hour)}).write(t.Context(), generation(7)); err != nil {
		t.Fatal(err)
	}
	if _, err := (&writer{path: dir, now: time.Now().Add(2 * time.Hour)}).write(t.Context(),
		generation(7)); err != nil {
		t.Fatal(err)
	}
	names, err := os.ReadDir(dir)
	if at, readErr := readGeneration(dir); at != "00000007" || len(names) != 5 || errors.Join(err, readErr) != nil {
		t.Errorf("at %s, %v: %v", at, errors.Join(err, readErr), names)
	}
}

// FuzzProjectedPath writes a file at any path that is taken: it is in the volume,
// found under a name that is not one of the volume's own, and nothing is outside.
func FuzzProjectedPath(f *testing.F) {
	roottest.Need(f, "changing owners")
	for _, p := range []string{"a", "a/b", "../x", "..data", "./..data/x", "/etc/x", "a/../../x", "a\x00",
		"..2026_01_02_15_04_05.1", "a/./b//c/", strings.Repeat("x/", 100) + "y", "..data_tmp", "\xff"} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p string) {
		around := t.TempDir()
		dir := filepath.Join(around, "volume")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		_, err := (&writer{path: dir, owner: owner{new(int64(os.Getgid()))}, now: time.Now()}).write(t.Context(),
			Files{p: text("content", 0o600)})
		clean, refused := CheckPath(p)
		if (err == nil) != (refused == nil) {
			t.Fatalf("%q: checked: %v, written: %v", p, refused, err)
		}
		beside, listErr := os.ReadDir(around)
		inside, listErr2 := os.ReadDir(dir)
		if len(beside) != 1 || errors.Join(listErr, listErr2) != nil {
			t.Fatalf("%q: %v beside the volume", p, beside)
		}
		if refused != nil {
			if len(inside) != 0 {
				t.Errorf("%q was refused and left %v", p, inside)
			}
			return
		}
		if content, err := os.ReadFile(filepath.Join(dir, clean)); string(content) != "content" || len(inside) != 3 ||
			strings.HasPrefix(clean, "..") {
			t.Errorf("%q: %q, %v, %v", p, content, err, inside)
		}
	})
}
