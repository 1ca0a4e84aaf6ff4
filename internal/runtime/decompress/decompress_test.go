package decompress

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// frame returns a zstd frame with a window of 1<<log bytes and "x" as its content (RFC 8878, 3.1.1).
func frame(log int) []byte {
	return []byte{0x28, 0xb5, 0x2f, 0xfd, 0, byte(log-10) << 3, 1 | 1<<3, 0, 0, 'x'}
}

func TestStream(t *testing.T) {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := io.WriteString(w, "x"); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	for name, in := range map[string][]byte{
		"plain": []byte("x"), "gzip": packed.Bytes(), "zstd": frame(20), "the largest window": frame(27),
	} {
		r, err := Stream(bytes.NewReader(in), MaxWindow)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, err := io.ReadAll(r)
		if err = errors.Join(err, r.Close()); string(got) != "x" || err != nil {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	r, err := Stream(strings.NewReader(""), MaxWindow)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); len(got) > 0 || err != nil {
		t.Errorf("nothing: %q, %v", got, err)
	}
}

// A later frame may have a larger window than the first.
func TestWindowsAreLimited(t *testing.T) {
	for name, in := range map[string][]byte{"first": frame(28), "second": append(frame(20), frame(29)...)} {
		for how, read := range map[string]func(io.Reader) error{
			"Read":    func(r io.Reader) error { _, err := io.ReadAll(r); return err },
			"WriteTo": func(r io.Reader) error { _, err := io.Copy(io.Discard, r); return err },
		} {
			r, err := Stream(bytes.NewReader(in), MaxWindow)
			if err != nil {
				t.Fatal(err)
			}
			err = read(r)
			if !errors.Is(err, zstd.ErrWindowSizeExceeded) ||
				!strings.Contains(err.Error(), "at most 134217728 bytes") {
				t.Errorf("%s frame, %s: %v", name, how, err)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
