package diskusage

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMeasure(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	fill := func(name string, size int) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755),
			os.WriteFile(name, make([]byte, size), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	fill(filepath.Join(outside, "big"), 8<<20)
	empty, err := Measure(t.Context(), dir)
	if err != nil || empty != (Usage{}) {
		t.Errorf("an empty volume takes %v, %v", empty, err)
	}
	fill(filepath.Join(dir, "a/b/file"), 1<<20)
	if err := errors.Join(
		os.Link(filepath.Join(dir, "a/b/file"), filepath.Join(dir, "again")),
		os.Symlink(filepath.Join(outside, "big"), filepath.Join(dir, "link")),
		os.Symlink(outside, filepath.Join(dir, "dir")),
		os.Symlink(dir, filepath.Join(dir, "loop")),
		unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	sparse, err := os.Create(filepath.Join(dir, "sparse"))
	if err != nil {
		t.Fatal(err)
	}
	defer sparse.Close()
	if err := sparse.Truncate(1 << 40); err != nil {
		t.Fatal(err)
	}
	used, err := Measure(t.Context(), dir)
	if err != nil || used.Bytes < 1<<20 || used.Bytes > 1<<20+64<<10 || used.Inodes != 8 {
		t.Errorf("it takes %v, %v, want 1 MiB and 8 inodes", used, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Measure(ctx, dir); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want it to end with its context", err)
	}
}

// A pod may replace a directory that is measured by a FIFO.
func TestMeasureRefusesFIFO(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if u, err := Measure(t.Context(), path); err == nil {
		t.Errorf("measured %+v", u)
	}
}
