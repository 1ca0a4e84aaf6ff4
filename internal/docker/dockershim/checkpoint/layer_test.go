package checkpoint

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/roottest"
)

// overlay mounts an overlay with some files, and changes files of all kinds. It returns the upper directory.
func overlay(t *testing.T) (upper string) {
	t.Helper()
	roottest.Need(t, "mounting")
	dir := t.TempDir()
	at := func(names ...string) string { return filepath.Join(append([]string{dir}, names...)...) }
	write := func(path, text string) error {
		return errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o640))
	}
	err := errors.Join(write(at("lower", "untouched"), "a"), write(at("lower", "kept"), "b"),
		write(at("lower", "removed"), "c"), write(at("lower", "changed"), "d"),
		write(at("lower", "replaced", "old"), "e"), write(at("lower", "deep", "removed"), "f"),
		os.Mkdir(at("upper"), 0o755), os.Mkdir(at("work"), 0o755), os.Mkdir(at("merged"), 0o755),
		unix.Mount("overlay", at("merged"), "overlay", 0,
			"lowerdir="+at("lower")+",upperdir="+at("upper")+",workdir="+at("work")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(at("merged"), 0); err != nil {
			t.Error(err)
		}
	})
	err = errors.Join(os.Remove(at("merged", "removed")), os.Remove(at("merged", "deep", "removed")),
		os.RemoveAll(at("merged", "replaced")), write(at("merged", "replaced", "new"), "g"),
		write(at("merged", "changed"), "longer"), os.Symlink("/etc/passwd", at("merged", "link")),
		unix.Mkfifo(at("merged", "fifo"), 0o600), os.Chmod(at("merged", "kept"), 0o600),
		os.Chown(at("merged", "kept"), 7, 8))
	if err != nil {
		t.Fatal(err)
	}
	return at("upper")
}

func TestLayerHasAllChanges(t *testing.T) {
	upper := overlay(t)
	var layer bytes.Buffer
	if err := writeChanges(t.Context(), &layer, upper); err != nil {
		t.Fatal(err)
	}
	var got []string
	for r := tar.NewReader(&layer); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%s %c %o %d:%d %s%s", h.Name, h.Typeflag, h.Mode, h.Uid, h.Gid, h.Linkname,
			content))
	}
	slices.Sort(got)
	want := []string{
		".wh.removed 0 0 0:0 ",
		"changed 0 640 0:0 longer",
		"deep/ 5 755 0:0 ",
		"deep/.wh.removed 0 0 0:0 ",
		"fifo 6 600 0:0 ",
		"kept 0 600 7:8 b",
		"link 2 777 0:0 /etc/passwd",
		"replaced/ 5 755 0:0 ",
		"replaced/.wh..wh..opq 0 0 0:0 ",
		"replaced/new 0 640 0:0 g",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestRootThatIsNoOverlayIsAnError(t *testing.T) {
	if err := writeChanges(t.Context(), &bytes.Buffer{}, ""); err == nil ||
		!strings.Contains(err.Error(), "not an overlay") {
		t.Errorf("%v", err)
	}
}
