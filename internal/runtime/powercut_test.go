package runtime_test

import (
	"context"
	"crypto/sha256"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/internal/base/roottest"
	"github.com/berth-run/berth/internal/base/unixsocket"
)

// The power is cut as soon as the runtime has reported an image as loaded. The runtime would never unpack the image
// again, so the files of its layers must be on the disk by then.
func TestLayersSurvivePowerCutAfterLoad(t *testing.T) {
	t.Cleanup(func() {
		if err := unixsocket.Sweep(context.Background()); err != nil {
			t.Error(err)
		}
	})
	dir, powerCut := roottest.Disk(t)
	content, err := os.ReadFile(archive(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "workload.tar"), content, 0o600); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(t.TempDir(), "berth")
	copySelf(t, binary)
	kill(t, serveChild(t, dir, binary))
	before := layers(t, dir)
	if len(before) < 3 {
		t.Fatalf("the files of layers are %v, want three of the image", before)
	}
	powerCut()
	if d := cmp.Diff(before, layers(t, dir)); d != "" {
		t.Errorf("files of layers after the power cut (-want +got):\n%s", d)
	}
	removeNetwork(t, dir)
}

// layers returns the checksum of each file of a layer.
func layers(t *testing.T, dir string) map[string][sha256.Size]byte {
	t.Helper()
	files := map[string][sha256.Size]byte{}
	snapshots := filepath.Join(dir, "root", "io.containerd.snapshotter.v1.overlayfs", "snapshots")
	err := filepath.WalkDir(snapshots, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		files[path] = sha256.Sum256(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
