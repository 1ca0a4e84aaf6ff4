package restore

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-run/berth/internal/base/archive"
	"github.com/berth-run/berth/internal/base/archive/archivetest"
	"github.com/berth-run/berth/internal/base/roottest"
	"github.com/berth-run/berth/internal/runtime/decompress"
)

// most is the largest size of the files in one archive, in bytes. Import has refused larger ones (package unpack).
const most = 1 << 20

// FuzzLayer unpacks any archive of a checkpoint, with valid checksums, beside a file that it must not touch.
func FuzzLayer(f *testing.F) {
	roottest.Need(f, "files of other owners")
	for _, entries := range [][]tar.Header{
		{{Typeflag: tar.TypeDir, Name: "checkpoint", Mode: 0o755},
			{Typeflag: tar.TypeReg, Name: "config.dump", Size: 3},
			{Typeflag: tar.TypeReg, Name: "checkpoint/pages-1.img", Mode: 0o600, Size: 3}},
		{{Typeflag: tar.TypeSymlink, Name: "up", Linkname: ".."}, {Typeflag: tar.TypeReg, Name: "up/outside", Size: 3}},
		{{Typeflag: tar.TypeReg, Name: "../outside", Size: 3}, {Typeflag: tar.TypeReg, Name: "/../.wh.outside"}},
		{{Typeflag: tar.TypeSymlink, Name: "l", Linkname: "../outside"},
			{Typeflag: tar.TypeLink, Name: "h", Linkname: "l"}, {Typeflag: tar.TypeReg, Name: "h", Size: 3},
			{Typeflag: tar.TypeReg, Name: ".wh..wh..opq"}, {Typeflag: tar.TypeFifo, Name: "p"}},
	} {
		plain := archivetest.Stream(f, entries...)
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		if _, err := w.Write(plain); err != nil || w.Close() != nil {
			f.Fatal(err)
		}
		f.Add(plain)
		f.Add(packed.Bytes())
	}
	f.Fuzz(func(t *testing.T, layer []byte) {
		layer = archivetest.Corrected(layer)
		if !isSmall(layer) {
			t.Skip("Import refuses it")
		}
		around := t.TempDir()
		target, outside := filepath.Join(around, "target"), filepath.Join(around, "outside")
		err := errors.Join(os.Mkdir(target, 0o700), os.WriteFile(outside, []byte("kept"), 0o600))
		if err != nil {
			t.Fatal(err)
		}
		_ = extractLayer(t.Context(), bytes.NewReader(layer), target) // most archives are broken
		if text, err := os.ReadFile(outside); err != nil || string(text) != "kept" {
			t.Errorf("the file outside holds %q, %v", text, err)
		}
		info, err := os.Stat(outside)
		if err != nil || info.Mode() != 0o600 {
			t.Errorf("the file outside has mode %v, %v", info.Mode(), err)
		}
		entries, err := fs.ReadDir(os.DirFS(around), ".")
		if err != nil || len(entries) != 2 {
			t.Errorf("beside the target are %v, %v", entries, err)
		}
	})
}

// isSmall reports whether the content and the files of an archive stay below the limit.
func isSmall(layer []byte) bool {
	plain, err := decompress.Stream(bytes.NewReader(layer), decompress.MaxWindow)
	if err != nil {
		return true // extractLayer fails too
	}
	defer plain.Close()
	in := &io.LimitedReader{R: plain, N: most}
	files := tar.NewReader(in)
	for {
		h, err := files.Next()
		if in.N <= 0 || err == nil && (h.Size > most || archive.IsSparse(h)) {
			return false
		}
		if err != nil {
			return true
		}
	}
}
