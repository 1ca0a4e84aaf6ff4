package archive

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/archive/archivetest"
	"github.com/berth-run/berth/internal/base/roottest"
)

// tree describes the entries below dir, one a line, without times.
func tree(t *testing.T, dir string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == dir {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		line := rel + " " + info.Mode().String()
		switch {
		case info.Mode().IsRegular():
			content, err := os.ReadFile(name)
			all = append(all, line+" "+string(content))
			return err
		case info.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(name)
			all = append(all, line+" "+to)
			return err
		}
		all = append(all, line)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func write(t *testing.T, name, content string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, to, name string) {
	t.Helper()
	if err := os.Symlink(to, name); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, name string) *os.File {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// local is the Target that the command uses.
func local(target string) Target {
	return Target{
		File: func(mode fs.FileMode) (*os.File, error) {
			return os.OpenFile(target, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
		},
		Dir: func(mode fs.FileMode) (*os.File, error) {
			if err := os.MkdirAll(target, mode); err != nil {
				return nil, err
			}
			return os.Open(target)
		},
	}
}

func TestPackThenUnpackKeepsTheTree(t *testing.T) {
	from := t.TempDir()
	write(t, filepath.Join(from, "a"), "first", 0o640)
	write(t, filepath.Join(from, "sub/b"), strings.Repeat("x", 100_000), 0o755)
	write(t, filepath.Join(from, strings.Repeat("long", 60)), "", 0o600)
	link(t, "sub/b", filepath.Join(from, "inside"))
	link(t, "/etc/passwd", filepath.Join(from, "outside"))
	link(t, "../../up", filepath.Join(from, "sub/up"))
	if err := unix.Mkfifo(filepath.Join(from, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	var stream bytes.Buffer
	if err := Pack(t.Context(), open(t, from), &stream); err != nil {
		t.Fatal(err)
	}
	into := filepath.Join(t.TempDir(), "copy")
	skipped, err := Unpack(&stream, local(into))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"fifo: is a named pipe",
		"outside: is a link to /etc/passwd, which is or may be outside the directory",
		"sub/up: is a link to ../../up, which is or may be outside the directory"}, skipped); diff != "" {
		t.Errorf("skipped (-want +got):\n%s", diff)
	}
	for _, gone := range []string{"fifo", "outside", "sub/up"} {
		if err := os.Remove(filepath.Join(from, gone)); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(tree(t, from), tree(t, into)); diff != "" {
		t.Errorf("copy (-want +got):\n%s", diff)
	}
}

func TestFileIntoRoot(t *testing.T) {
	roottest.Need(t, "changing owners")
	root := t.TempDir()
	write(t, filepath.Join(root, "etc/there"), "old and long", 0o600)
	link(t, "/etc", filepath.Join(root, "abs")) // leads below root, not to the host
	link(t, "/etc/there", filepath.Join(root, "file"))
	link(t, "../../../../etc/climbed", filepath.Join(root, "climb"))
	source := filepath.Join(t.TempDir(), "source")
	write(t, source, "new", 0o751)
	for _, to := range []string{"/etc", "/abs/fresh", "file", "/climb", "../../top"} {
		var stream bytes.Buffer
		if err := Pack(t.Context(), open(t, source), &stream); err != nil {
			t.Fatal(err)
		}
		if skipped, err := UnpackIn(open(t, root), to, "source", &Owner{UID: 12, GID: 13}, &stream); err != nil ||
			skipped != nil {
			if to != "/climb" { // a link without a target is not replaced by a file
				t.Errorf("%s: %v, %v", to, skipped, err)
			}
		}
	}
	want := []string{
		"abs Lrwxrwxrwx /etc", "climb Lrwxrwxrwx ../../../../etc/climbed", "etc drwxr-xr-x",
		"etc/fresh -rwxr-x--x new", "etc/source -rwxr-x--x new", "etc/there -rwxr-x--x new",
		"file Lrwxrwxrwx /etc/there", "top -rwxr-x--x new",
	}
	if diff := cmp.Diff(want, tree(t, root)); diff != "" {
		t.Errorf("root (-want +got):\n%s", diff)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(root, "etc/fresh"), &st); err != nil || st.Uid != 12 || st.Gid != 13 {
		t.Errorf("owner %d:%d, %v", st.Uid, st.Gid, err)
	}
	var stream bytes.Buffer
	if err := PackIn(t.Context(), open(t, root), "/file", &stream); err != nil {
		t.Fatal(err)
	}
	back := filepath.Join(t.TempDir(), "back")
	if _, err := Unpack(&stream, local(back)); err != nil {
		t.Fatal(err)
	}
	if content, err := os.ReadFile(back); string(content) != "new" || err != nil {
		t.Errorf("%q, %v", content, err)
	}
}

// A stream from a container must not write outside the target directory.
func TestUnpackStaysInside(t *testing.T) {
	dir := tar.Header{Typeflag: tar.TypeDir, Name: ".", Mode: 0o755}
	file := func(name string) tar.Header {
		return tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: 3}
	}
	subdir := func(name string) tar.Header { return tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755} }
	symlink := func(name, to string) tar.Header {
		return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to}
	}
	for _, test := range []struct {
		name    string
		entries []tar.Header
		links   bool
		err     string
		skipped []string
	}{
		{name: "dots", entries: []tar.Header{dir, file("../evil")}, err: "outside"},
		{name: "absolute", entries: []tar.Header{dir, file("/evil")}, err: "outside"},
		{name: "through a link", entries: []tar.Header{dir, symlink("l", ".."), file("l/evil")}, links: true,
			err: "path escapes"},
		{name: "through an absolute link", entries: []tar.Header{dir, symlink("l", "/"), file("l/evil")}, links: true,
			err: "path escapes"},
		{name: "a link replaced", entries: []tar.Header{dir, symlink("l", "../evil"), file("l")}, links: true},
		{name: "a directory behind a link",
			entries: []tar.Header{dir, symlink("l", ".."), {Typeflag: tar.TypeDir, Name: "l/evil", Mode: 0o755}},
			links:   true, err: "path escapes"},
		{name: "a link through a link",
			entries: []tar.Header{
				dir, subdir("a"), subdir("a/b"), symlink("a/b/up", "../.."), symlink("evil", "a/b/up/.."),
			},
			skipped: []string{"evil: is a link to a/b/up/.., which is or may be outside the directory"}},
		{name: "a link through a later link",
			entries: []tar.Header{dir, symlink("evil", "up/../.."), symlink("up", ".")},
			skipped: []string{"evil: is a link to up/../.., which is or may be outside the directory"}},
		{name: "a link behind a link",
			entries: []tar.Header{
				dir, subdir("a"), subdir("a/b"), symlink("a/b/up", "../.."), symlink("a/b/up/evil", "../.."),
			},
			skipped: []string{"a/b/up/evil: is a link in a directory behind another link"}},
		{name: "links inside",
			entries: []tar.Header{dir, subdir("a"), symlink("a/l", ".././x/y"), symlink("m", "a//l")}},
		{name: "a hard link", entries: []tar.Header{dir, {Typeflag: tar.TypeLink, Name: "l", Linkname: "../outside"}},
			skipped: []string{"l: is a hard link"}},
		{name: "a device", entries: []tar.Header{dir, {Typeflag: tar.TypeChar, Name: "d", Devmajor: 1, Devminor: 3}},
			skipped: []string{"d: is a device"}},
		{name: "a name first", entries: []tar.Header{file("../evil")}, err: "begins with"},
		{name: "a link first", entries: []tar.Header{symlink(".", "../evil")}, err: "only files and directories"},
		{name: "nothing", err: "unexpected EOF"},
	} {
		t.Run(test.name, func(t *testing.T) {
			around := t.TempDir()
			write(t, filepath.Join(around, "outside"), "kept", 0o600)
			target := local(filepath.Join(around, "target"))
			target.Links = test.links
			skipped, err := Unpack(bytes.NewReader(archivetest.Stream(t, test.entries...)), target)
			if diff := cmp.Diff(test.skipped, skipped); diff != "" {
				t.Errorf("skipped (-want +got):\n%s", diff)
			}
			if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("error %v, want %q", err, test.err)
			}
			for _, line := range tree(t, around) {
				if name, _, _ := strings.Cut(line, " "); !test.links && filepath.Base(name) == "evil" {
					t.Errorf("made %s", line)
				}
				if !strings.HasPrefix(line, "target") && line != "outside -rw------- kept" {
					t.Errorf("outside of the target: %s", line)
				}
			}
		})
	}
}

func TestPackEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Pack(ctx, open(t, t.TempDir()), io.Discard); err == nil {
		t.Error("packed after its context")
	}
}

// The number that Unpack reports is for a progress bar: it must be close to the length of the stream.
func TestSizeIsCloseToTheStream(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "large"), strings.Repeat("x", 300_000), 0o600)
	write(t, filepath.Join(dir, "sub/small"), "y", 0o600)
	link(t, "large", filepath.Join(dir, "link"))
	for _, name := range []string{dir, filepath.Join(dir, "large")} {
		var stream bytes.Buffer
		if err := Pack(t.Context(), open(t, name), &stream); err != nil {
			t.Fatal(err)
		}
		length := int64(stream.Len())
		size, err := Size(t.Context(), open(t, name))
		if err != nil {
			t.Fatal(err)
		}
		var expected int64
		target := local(filepath.Join(t.TempDir(), "copy"))
		target.Expect = func(bytes int64) { expected = bytes }
		if _, err := Unpack(&stream, target); err != nil {
			t.Fatal(err)
		}
		if expected != size {
			t.Errorf("%s: the stream announces %d bytes, Size returns %d", name, expected, size)
		}
		if size < length*9/10 || size > length*11/10 {
			t.Errorf("%s: size %d of a stream with %d bytes", name, size, length)
		}
	}
}
