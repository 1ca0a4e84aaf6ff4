package unpack

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/berth-run/berth/internal/base/archive"
	"github.com/berth-run/berth/internal/base/archive/archivetest"
	"github.com/berth-run/berth/internal/runtime/decompress"
)

// limits of the tests: a layer may unpack to 1 MiB, and above that to 10 times its compressed size.
var limits = Limits{MaxRatio: 10, Harmless: 1 << 20, Reserve: 1}

// window is the largest of the seeds. Larger ones only cost time.
const window = 8 << 20

// FuzzLayer reads any compressed layer as containerd does. Its bytes and its files, with all their holes, stay within
// the limits.
func FuzzLayer(f *testing.F) {
	for _, plain := range [][]byte{layer(f, 10), layer(f, 4<<20), archivetest.Sparse("f", 1<<40),
		bytes.Repeat([]byte{0}, 4<<20)} {
		f.Add(plain)
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		if _, err := w.Write(plain); err != nil || w.Close() != nil {
			f.Fatal(err)
		}
		f.Add(packed.Bytes())
		z, err := zstd.NewWriter(nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(z.EncodeAll(plain, nil))
	}
	f.Fuzz(func(t *testing.T, compressed []byte) {
		most := max(limits.Harmless, limits.MaxRatio*int64(len(compressed)+1))
		in := &countedInput{Reader: bytes.NewReader(compressed)}
		plain, err := decompress.Stream(in, window)
		if err != nil {
			return
		}
		b := limits.bounded("layer", in, plain, "")
		defer func() { _ = b.Close() }() // it was only read
		files := tar.NewReader(b)
		for {
			h, err := files.Next()
			if err != nil {
				break
			}
			// containerd writes a file as soon as it has read the header.
			if archive.IsSparse(h) && h.Size > most {
				t.Fatalf("%d compressed bytes become a file of %d bytes", len(compressed), h.Size)
			}
		}
		if n, _ := io.Copy(io.Discard, b); b.n > most+1<<20 {
			t.Errorf("%d compressed bytes were unpacked to %d, %d of them after the files", len(compressed), b.n, n)
		}
	})
}

// A file with a hole of 1 TiB needs a few hundred bytes in a layer. containerd would write the zeros.
func TestSparseFilesCountInFull(t *testing.T) {
	for name, test := range map[string]struct {
		layer []byte
		err   string
	}{
		"a small hole":      {archivetest.Sparse("f", 1<<10), ""},
		"a hole of 1 TiB":   {archivetest.Sparse("f", 1<<40), "layer is too large"},
		"a file without":    {layer(t, 1<<10), ""},
		"no tar archive":    {[]byte(strings.Repeat("text", 1000)), ""},
		"behind its end":    {append(layer(t, 10), bytes.Repeat([]byte("x"), 5000)...), ""},
		"cut in the middle": {layer(t, 5000)[:3000], ""},
	} {
		t.Run(name, func(t *testing.T) {
			in := &countedInput{Reader: bytes.NewReader(test.layer)}
			b := limits.bounded("layer", in, io.NopCloser(in), t.TempDir())
			got, err := io.ReadAll(b)
			if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("error %v, want %q", err, test.err)
			}
			if err == nil && !bytes.Equal(got, test.layer) {
				t.Errorf("read %d bytes of %d", len(got), len(test.layer))
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// layer is a layer with one file of size bytes.
func layer(t testing.TB, size int64) []byte {
	t.Helper()
	return archivetest.Stream(t, tar.Header{Typeflag: tar.TypeReg, Name: "f", Mode: 0o644, Size: size})
}
