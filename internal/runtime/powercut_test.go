package runtime_test

import (
	"context"
	"crypto/sha256"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/roottest"
	"github.com/berth-run/berth/internal/base/unixsocket"
)

// The power is cut as soon as the runtime has reported an image as loaded. The runtime would never unpack the image
// again, so the files of its layers must be on the disk by then, and the image itself. When its content is lost later,
// and with it the removal, the image must go, so that it is pulled again.
func TestImageSurvivesPowerCutAfterLoad(t *testing.T) {
	t.Cleanup(func() {
		if err := unixsocket.Sweep(context.Background()); err != nil {
			t.Error(err)
		}
	})
	dir, powerCut := roottest.Disk(t)
	putArchive(t, dir)
	binary := filepath.Join(t.TempDir(), "berth")
	copySelf(t, binary)
	kill(t, serveChild(t, dir, binary))
	before := layers(t, dir)
	if len(before) < 3 {
		t.Fatalf("the files of layers are %v, want three of the image", before)
	}
	powerCut()
	if err := os.Remove(filepath.Join(dir, archiveName)); err != nil { // so that nothing loads it again
		t.Fatal(err)
	}
	reboot(t, dir)
	if d := cmp.Diff(before, layers(t, dir)); d != "" {
		t.Errorf("files of layers after the power cut (-want +got):\n%s", d)
	}
	agent := serveChild(t, dir, binary)
	if names := imageNames(t, dir); !slices.Contains(names, imageName) {
		t.Errorf("images after the power cut: %v, want %s", names, imageName)
	}
	kill(t, agent)

	blobs := filepath.Join(dir, "root", "io.containerd.content.v1.content", "blobs")
	if err := os.RemoveAll(blobs); err != nil {
		t.Fatal(err)
	}
	reboot(t, dir)
	kill(t, serveChild(t, dir, binary))
	agent = serveChild(t, dir, binary) // an agent that is killed in the same boot changes nothing
	if names := imageNames(t, dir); len(names) > 0 {
		t.Errorf("images without content: %v", names)
	}
	kill(t, agent)
	removeNetwork(t, dir)
}

// reboot makes the files of a runtime that was killed look as after a boot.
func reboot(t *testing.T, dir string) {
	t.Helper()
	mark := filepath.Join(dir, "root", "io.containerd.metadata.v1.bolt", "meta.db.boot")
	if written, err := os.ReadFile(mark); err != nil || len(written) == 0 {
		t.Fatalf("the runtime has not noted its boot: %q, %v", written, err)
	}
	if err := os.WriteFile(mark, []byte("another boot"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "state")); err != nil {
		t.Fatal(err)
	}
}

func imageNames(t *testing.T, dir string) (names []string) {
	t.Helper()
	list, err := cri.NewImageServiceClient(dial(t, dir)).ListImages(t.Context(), &cri.ListImagesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, image := range list.Images {
		names = append(names, image.RepoTags...)
	}
	return names
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
