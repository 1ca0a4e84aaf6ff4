package archive

import (
	"archive/tar"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/archive/archivetest"
)

// FuzzUnpack unpacks any stream, with valid checksums, beside files that it must not touch.
func FuzzUnpack(f *testing.F) {
	for _, entries := range [][]tar.Header{
		{{Typeflag: tar.TypeReg, Name: ".", Mode: 0o644, Size: 3}},
		{{Typeflag: tar.TypeDir, Name: ".", Mode: 0o755}, {Typeflag: tar.TypeDir, Name: "d", Mode: 0o755},
			{Typeflag: tar.TypeReg, Name: "d/f", Mode: 0o4755, Size: 3},
			{Typeflag: tar.TypeSymlink, Name: "l", Linkname: "d/f"},
			{Typeflag: tar.TypeSymlink, Name: "d/up", Linkname: "../.."},
			{Typeflag: tar.TypeReg, Name: "d/up/outside", Size: 3}},
		{{Typeflag: tar.TypeDir, Name: "."}, {Typeflag: tar.TypeSymlink, Name: "a", Linkname: "."},
			{Typeflag: tar.TypeSymlink, Name: "a/b/c/up", Linkname: "../../.."},
			{Typeflag: tar.TypeReg, Name: "a/b/c/up/../../outside", Size: 3}},
		{{Typeflag: tar.TypeDir, Name: "."}, {Typeflag: tar.TypeLink, Name: "h", Linkname: "../outside"},
			{Typeflag: tar.TypeFifo, Name: "p"}, {Typeflag: tar.TypeChar, Name: "c", Devmajor: 1, Devminor: 5},
			{Typeflag: tar.TypeReg, Name: strings.Repeat("long/", 60) + "x", Size: 3}},
	} {
		f.Add(archivetest.Stream(f, entries...), true)
		f.Add(archivetest.Stream(f, entries...), false)
	}
	f.Add(archivetest.Sparse(".", 1<<24), true) // 16 MiB
	f.Fuzz(func(t *testing.T, raw []byte, links bool) {
		around := t.TempDir()
		write(t, filepath.Join(around, "outside"), "kept", 0o600)
		target := local(filepath.Join(around, "target"))
		target.Links = links
		raw = archivetest.Corrected(raw)
		_, _ = Unpack(bytes.NewReader(raw), target) // most streams are broken
		total := int64(0)
		err := filepath.WalkDir(around, func(name string, _ fs.DirEntry, err error) error {
			var st unix.Stat_t
			if err = errors.Join(err, unix.Lstat(name, &st)); err != nil {
				return err
			}
			rel, err := filepath.Rel(around, name)
			if first, _, _ := strings.Cut(rel, "/"); first != "target" && rel != "." && rel != "outside" {
				t.Errorf("outside of the target: %s", rel)
			}
			switch st.Mode & unix.S_IFMT {
			case unix.S_IFREG:
				total += st.Size
			case unix.S_IFDIR: // an ordinary user cannot read what the stream closes to its owner
				err = errors.Join(err, os.Chmod(name, 0o700))
			case unix.S_IFLNK:
				to, err := os.Readlink(name)
				inside := strings.HasPrefix(filepath.Join(name, "..", to), around)
				if err == nil && !links && (filepath.IsAbs(to) || !inside) {
					t.Errorf("%s leads to %s", rel, to)
				}
			default:
				t.Errorf("%s has mode %o", rel, st.Mode)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if total > int64(len(raw)+len("kept")) {
			t.Errorf("%d bytes of a stream became files of %d bytes", len(raw), total)
		}
		if text, err := os.ReadFile(filepath.Join(around, "outside")); err != nil || string(text) != "kept" {
			t.Errorf("the file outside holds %q, %v", text, err)
		}
	})
}
