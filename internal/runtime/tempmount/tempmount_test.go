package tempmount_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/roottest"
	"github.com/berth-run/berth/internal/runtime/tempmount"
)

// An earlier process was killed while its mounts existed. The next one removes them, and the layers stay.
func TestUse(t *testing.T) {
	roottest.Need(t, "mounts")
	base := t.TempDir()
	t.Setenv("TMPDIR", makeDir(t, base, "tmp"))
	root := makeDir(t, base, "root")
	dir := filepath.Join(root, "tmpmounts")
	layer := makeDir(t, root, "layer")
	if err := os.WriteFile(filepath.Join(layer, "file"), []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	foreign := makeDir(t, base, "rooted") // begins like root
	left := []string{
		overlay(t, layer, makeDir(t, dir, "containerd-mount1")),
		overlay(t, layer, makeDir(t, dir, "multiple-lowerdir-check1", "merged")),
		overlay(t, layer, makeDir(t, base, "tmp", "ctd-volume1")),
		bind(t, layer, makeDir(t, dir, "containerd-mount2")),
	}
	left = append(left, overlay(t, layer, left[0])) // a second mount above the first
	kept := []string{
		overlay(t, foreign, makeDir(t, base, "tmp", "ctd-volume2")), // of another runtime
		overlay(t, layer, makeDir(t, base, "tmp", "web")),           // not containerd's
	}

	if err := tempmount.Use(root, dir); err != nil {
		t.Fatal(err)
	}
	for _, path := range left {
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			t.Errorf("%s: %v, want it removed", path, err)
		}
	}
	for _, path := range kept {
		if mounted, err := mountinfo.Mounted(path); !mounted || err != nil {
			t.Errorf("%s is mounted: %t, %v", path, mounted, err)
		}
	}
	if text, err := os.ReadFile(filepath.Join(layer, "file")); string(text) != "content" {
		t.Errorf("the layer has %q, %v", text, err)
	}
	if entries, err := os.ReadDir(dir); len(entries) > 0 || err != nil {
		t.Errorf("%s has %v, %v", dir, entries, err)
	}
	err := mount.WithTempMount(t.Context(), []mount.Mount{{Type: "tmpfs", Source: "tmpfs"}},
		func(at string) error {
			if !strings.HasPrefix(at, dir+"/") {
				t.Errorf("containerd mounts at %s, not below %s", at, dir)
			}
			return nil
		})
	if err != nil {
		t.Error(err)
	}
}

// The first start of a runtime: nothing exists but its root.
func TestUseFirst(t *testing.T) {
	root := t.TempDir()
	for range 2 {
		if err := tempmount.Use(root, filepath.Join(root, "tmpmounts")); err != nil {
			t.Fatal(err)
		}
	}
}

func makeDir(t *testing.T, elements ...string) string {
	t.Helper()
	path := filepath.Join(elements...)
	if err := os.MkdirAll(path, 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// overlay mounts an overlay of layer and an empty directory at path, until the test ends.
func overlay(t *testing.T, layer, path string) string {
	t.Helper()
	options := fmt.Sprintf("lowerdir=%s:%s", layer, t.TempDir())
	if err := unix.Mount("overlay", path, "overlay", unix.MS_RDONLY, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
	return path
}

func bind(t *testing.T, source, path string) string {
	t.Helper()
	if err := unix.Mount(source, path, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
	return path
}
