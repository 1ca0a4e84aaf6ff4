package safepath

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// volume makes a directory, and beside it one outside that must not change.
func volume(t *testing.T) (dir *os.File, inside, outside string) {
	t.Helper()
	base := t.TempDir()
	inside, outside = filepath.Join(base, "volume"), filepath.Join(base, "outside")
	for _, d := range []string{inside, outside} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(inside)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	return dir, inside, outside
}

func link(t *testing.T, target, name string) {
	t.Helper()
	if err := os.Symlink(target, name); err != nil {
		t.Fatal(err)
	}
}

// place is the real path of an open file.
func place(t *testing.T, f *os.File) string {
	t.Helper()
	p, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(int(f.Fd())))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// untouched fails the test if the directory outside has changed.
func untouched(t *testing.T, outside string) {
	t.Helper()
	entries, err := os.ReadDir(outside)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 1 || entries[0].Name() != "secret" {
		t.Errorf("the outside was written to: %v", entries)
	}
}

func TestOpenAndMkdirAllStayInside(t *testing.T) {
	dir, inside, outside := volume(t)
	link(t, outside, filepath.Join(inside, "absolute"))
	link(t, "../outside", filepath.Join(inside, "up"))
	link(t, "/proc/self/root/etc", filepath.Join(inside, "proc"))
	link(t, "/proc/self/fd/"+strconv.Itoa(int(dir.Fd())), filepath.Join(inside, "magic"))
	link(t, "up", filepath.Join(inside, "twice"))
	link(t, "loop", filepath.Join(inside, "loop"))
	link(t, "nowhere/at/all", filepath.Join(inside, "dangling"))
	for _, rel := range []string{
		"absolute", "absolute/secret", "absolute/new", "up", "up/secret", "up/new/deep", "proc/passwd", "magic",
		"magic/x", "twice/secret", "loop", "dangling/x",
		"..", "../outside/secret", "a/../../outside", "/etc/passwd", "/",
	} {
		if f, err := Open(dir, rel); err == nil {
			t.Errorf("Open(%q) arrived at %s", rel, place(t, f))
			f.Close()
		}
		if f, err := MkdirAll(dir, rel, 0o755); err == nil {
			t.Errorf("MkdirAll(%q) arrived at %s", rel, place(t, f))
			f.Close()
		}
	}
	untouched(t, outside)
	for _, rel := range []string{"absolute/secret", "up/secret", "twice"} {
		if _, err := Open(dir, rel); !errors.Is(err, ErrEscape) {
			t.Errorf("Open(%q) = %v, want ErrEscape", rel, err)
		}
	}
}

func TestMkdirAll(t *testing.T) {
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	dir, inside, _ := volume(t)
	if err := os.MkdirAll(filepath.Join(inside, "real/deep"), 0o755); err != nil {
		t.Fatal(err)
	}
	link(t, "real/deep", filepath.Join(inside, "alias"))
	if err := os.Chmod(filepath.Join(inside, "real"), 0o755|os.ModeSetgid); err != nil {
		t.Fatal(err)
	}
	for rel, want := range map[string]string{
		"": "", ".": "", "a": "a", "a/b/c": "a/b/c", "./a//b/.": "a/b",
		"alias": "real/deep", "alias/../x": "", "alias/new/er": "real/deep/new/er", "real/group": "real/group",
	} {
		f, err := MkdirAll(dir, rel, 0o770)
		if strings.Contains(rel, "..") {
			if err == nil {
				t.Errorf("MkdirAll(%q) succeeded", rel)
			}
			continue
		}
		if err != nil {
			t.Errorf("MkdirAll(%q) = %v", rel, err)
			continue
		}
		if got := place(t, f); got != filepath.Join(inside, want) {
			t.Errorf("MkdirAll(%q) = %s, want %s", rel, got, want)
		}
		f.Close()
	}
	for name, want := range map[string]os.FileMode{"a/b/c": 0o770, "real/deep/new": 0o770,
		"real/group": 0o770 | os.ModeSetgid, "real/deep": 0o700} {
		info, err := os.Stat(filepath.Join(inside, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode() &^ os.ModeDir; got != want {
			t.Errorf("mode of %s = %v, want %v", name, got, want)
		}
	}
	if err := os.WriteFile(filepath.Join(inside, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if f, err := MkdirAll(dir, "file/x", 0o755); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("below a file: %v, %v, want ENOTDIR", f, err)
	}
}

func TestHost(t *testing.T) {
	_, inside, outside := volume(t)
	link(t, outside, filepath.Join(inside, "link"))
	f, err := Host(filepath.Join(inside, "link/secret"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got := place(t, f); got != filepath.Join(outside, "secret") {
		t.Errorf("got %s", got)
	}
	link(t, "/proc/self/root", filepath.Join(inside, "magic"))
	if _, err := Host(filepath.Join(inside, "magic/etc")); !errors.Is(err, ErrEscape) {
		t.Errorf("through /proc: %v, want ErrEscape", err)
	}
}

func TestHostMkdirAllAndCreate(t *testing.T) {
	_, inside, outside := volume(t)
	link(t, outside, filepath.Join(inside, "link")) // an absolute link like /var/run
	f, err := HostMkdirAll(filepath.Join(inside, "link/a/b"), 0o755)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got := place(t, f); got != filepath.Join(outside, "a/b") {
		t.Errorf("got %s", got)
	}
	for range 2 {
		if err := HostCreate(filepath.Join(inside, "link/a/b/file"), 0o644); err != nil {
			t.Error(err)
		}
	}
	if info, err := os.Lstat(filepath.Join(outside, "a/b/file")); err != nil || !info.Mode().IsRegular() {
		t.Errorf("the file: %v, %v", info, err)
	}
	if err := HostCreate(filepath.Join(inside, "none/file"), 0o644); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("in a directory that is not there: %v", err)
	}
	link(t, "/proc/self/root", filepath.Join(inside, "magic"))
	if _, err := HostMkdirAll(filepath.Join(inside, "magic", outside, "x"), 0o755); !errors.Is(err, ErrEscape) {
		t.Errorf("through /proc: %v, want ErrEscape", err)
	}
}

// Another thread turns a directory of the volume into a link to the outside and back, as fast as it can.
func TestOpenStaysInsideDuringSwaps(t *testing.T) {
	dir, inside, outside := volume(t)
	if err := os.MkdirAll(filepath.Join(inside, "d"), 0o755); err != nil {
		t.Fatal(err)
	}
	link(t, outside, filepath.Join(inside, "evil"))
	ctx, stop := context.WithCancel(t.Context())
	swaps := make(chan int)
	go func() {
		n := 0
		for ; ctx.Err() == nil; n++ {
			_ = unix.Renameat2(int(dir.Fd()), "d", int(dir.Fd()), "evil", unix.RENAME_EXCHANGE)
		}
		swaps <- n
	}()
	arrived, refused := 0, 0
	for i := range 20_000 {
		f, err := MkdirAll(dir, "d/sub"+strconv.Itoa(i%50)+"/x", 0o755)
		if err != nil {
			refused++
			continue
		}
		arrived++
		if got := place(t, f); !strings.HasPrefix(got, inside+"/") {
			t.Fatalf("arrived at %s", got)
		}
		f.Close()
	}
	stop()
	t.Logf("%d swaps, %d times arrived, %d times refused", <-swaps, arrived, refused)
	if arrived == 0 || refused == 0 {
		t.Error("nothing was raced")
	}
	untouched(t, outside)
}

func TestNames(t *testing.T) {
	for name, ok := range map[string]bool{"a": true, "a..b": true, "...": true, "": false, ".": false, "..": false,
		"a/b": false, "a\x00": false} {
		if err := Name(name); (err == nil) != ok {
			t.Errorf("Name(%q) = %v", name, err)
		}
	}
}

func FuzzClean(f *testing.F) {
	for _, s := range []string{"", "a/b", "../x", "a/../../b", "/etc", "a//./b/", "..a/b.."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := Clean(s)
		if err == nil && !filepath.IsLocal(got) {
			t.Errorf("Clean(%q) = %q, which is not local", s, got)
		}
	})
}

func TestFile(t *testing.T) {
	_, inside, outside := volume(t)
	at := func(name string) string { return filepath.Join(inside, name) }
	if err := errors.Join(os.MkdirAll(at("a/b"), 0o755), os.WriteFile(at("a/b/file"), []byte("text"), 0o600),
		unix.Mkfifo(at("a/b/pipe"), 0o600)); err != nil {
		t.Fatal(err)
	}
	link(t, filepath.Join(outside, "secret"), at("a/b/link"))
	link(t, "b", at("a/alias"))
	tests := []struct {
		name  string
		depth int
		err   string // "" for none
	}{
		{"a/b/file", 1, ""},
		{"a/b/file", 3, ""},
		{"a/alias/file", 1, ""},
		{"a/alias/file", 2, "not a regular file but behind a symbolic link"},
		{"a/b/link", 1, "not a regular file but a symbolic link"},
		{"a/b/pipe", 1, "not a regular file but a named pipe"},
		{"a/b", 1, "not a regular file but a directory"},
		{"a/b/none", 2, "open " + at("a/b/none") + ": no such file or directory"},
	}
	for _, test := range tests {
		f, err := File(at(test.name), test.depth)
		if test.err != "" {
			if err == nil || err.Error() != test.err {
				t.Errorf("%s, %d: got %v, want %s", test.name, test.depth, err, test.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s, %d: %v", test.name, test.depth, err)
			continue
		}
		if text, err := io.ReadAll(f); err != nil || string(text) != "text" || f.Name() != at(test.name) {
			t.Errorf("%s: %q of %s, %v", test.name, text, f.Name(), err)
		}
		f.Close()
	}
	untouched(t, outside)
}

// FuzzMkdirAll opens and makes any path. The result is inside, or there is an error.
func FuzzMkdirAll(f *testing.F) {
	for _, s := range []string{"", ".", "a/b", "out", "out/x", "proc/1/root/x", "self/x", "a/../out", "/etc", "up/up",
		"loop", "a//b/./c/", "a\x00b", strings.Repeat("d/", 50)} {
		f.Add(s)
	}
	base := f.TempDir()
	inside, outside := filepath.Join(base, "inside"), filepath.Join(base, "outside")
	if err := errors.Join(os.Mkdir(inside, 0o755), os.Mkdir(outside, 0o755)); err != nil {
		f.Fatal(err)
	}
	for name, target := range map[string]string{"out": outside, "proc": "/proc", "self": "/proc/self/root",
		"up": "../outside", "loop": "loop", "in": "a"} {
		if err := os.Symlink(target, filepath.Join(inside, name)); err != nil {
			f.Fatal(err)
		}
	}
	dir, err := os.Open(inside)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = dir.Close() })
	f.Fuzz(func(t *testing.T, s string) {
		if at, err := MkdirAll(dir, s, 0o755); err == nil {
			if got := place(t, at); got != inside && !strings.HasPrefix(got, inside+"/") {
				t.Errorf("%q leads to %s", s, got)
			}
			at.Close()
		}
		if entries, err := os.ReadDir(outside); err != nil || len(entries) > 0 {
			t.Errorf("%q made something outside: %v, %v", s, entries, err)
		}
	})
}

// A directory that is made in a volume has the mode of the volume, with setgid and the sticky bit.
func TestMkdirAllKeepsSpecialBits(t *testing.T) {
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	dir, inside, _ := volume(t)
	for name, mode := range map[string]os.FileMode{
		"sticky": 0o777 | os.ModeSticky, "both": 0o777 | os.ModeSticky | os.ModeSetgid, "plain": 0o750,
	} {
		f, err := MkdirAll(dir, name+"/below", mode)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		for _, made := range []string{name, name + "/below"} {
			info, err := os.Stat(filepath.Join(inside, made))
			if err != nil {
				t.Fatal(err)
			}
			if got := info.Mode() &^ os.ModeDir; got != mode {
				t.Errorf("%s has the mode %v, want %v", made, got, mode)
			}
		}
	}
}
