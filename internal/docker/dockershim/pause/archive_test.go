package pause

import (
	"archive/tar"
	"bytes"
	"io"
	"testing"
)

func TestArchiveOfAProgramIsTheSameEachTime(t *testing.T) {
	first, err := archive([]byte("program"))
	if err != nil {
		t.Fatal(err)
	}
	second, err := archive([]byte("program"))
	if err != nil || !bytes.Equal(first, second) {
		t.Errorf("the archives differ: %v", err)
	}
	var names []string
	for r := tar.NewReader(bytes.NewReader(first)); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
	}
	if len(names) != 3 || Name([]byte("program")) == Name([]byte("other")) {
		t.Errorf("files %q, name %s", names, Name([]byte("program")))
	}
}
