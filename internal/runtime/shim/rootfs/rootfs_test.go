package rootfs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/v2/core/mount"

	"github.com/berth-run/berth/internal/base/roottest"
)

// An overlay does not wait for the disk, and can be mounted again after a shim that was killed.
func TestMountIsVolatile(t *testing.T) {
	dir := roottest.Dir(t, "mounting", func(dir string) {
		if err := mount.UnmountRecursive(dir, 0); err != nil {
			t.Error(err)
		}
	})
	// The layers of an overlay cannot be in another overlay, which the directory may be in.
	if err := (&mount.Mount{Type: "tmpfs", Source: "layers"}).Mount(dir); err != nil {
		t.Fatal(err)
	}
	path := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"lower", "upper", "work", "root"} {
		if err := os.Mkdir(path(name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	parts := []*types.Mount{{Type: "overlay", Source: "overlay", Options: []string{
		"lowerdir=" + path("lower"), "upperdir=" + path("upper"), "workdir=" + path("work"),
	}}}
	for range 2 {
		if err := Mount(parts, path("root")); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(path("work/work/incompat/volatile")); err != nil {
			t.Errorf("the mark of a volatile mount: %v", err)
		}
		if err := mount.UnmountRecursive(path("root"), 0); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(parts[0].Options); got != 3 {
		t.Errorf("the request has %d options now, want 3", got)
	}
}

// Another file system has only its own options.
func TestMountOfAnotherType(t *testing.T) {
	roottest.Need(t, "mounting")
	dir := t.TempDir()
	if err := Mount([]*types.Mount{{Type: "tmpfs", Source: "root", Options: []string{"size=4k"}}}, dir); err != nil {
		t.Fatal(err)
	}
	if err := mount.UnmountRecursive(dir, 0); err != nil {
		t.Error(err)
	}
}
