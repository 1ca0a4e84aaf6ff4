package archivetest

import (
	"archive/tar"
	"bytes"
	"testing"
)

// File is a regular file of a stream.
type File struct {
	Name    string
	Content []byte
}

// Files is a stream with these files.
func Files(t testing.TB, files ...File) []byte {
	t.Helper()
	var entries []tar.Header
	var contents [][]byte
	for _, f := range files {
		entries = append(entries,
			tar.Header{Typeflag: tar.TypeReg, Name: f.Name, Mode: 0o644, Size: int64(len(f.Content))})
		contents = append(contents, f.Content)
	}
	return stream(t, entries, contents)
}

// Stream is a stream with these entries. A file of n bytes consists of n times the letter x.
func Stream(t testing.TB, entries ...tar.Header) []byte {
	t.Helper()
	var contents [][]byte
	for _, h := range entries {
		contents = append(contents, bytes.Repeat([]byte("x"), int(h.Size)))
	}
	return stream(t, entries, contents)
}

func stream(t testing.TB, entries []tar.Header, contents [][]byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for i, h := range entries {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(contents[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
