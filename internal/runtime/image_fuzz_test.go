package runtime

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/metadata"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/plugins/content/local"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"go.etcd.io/bbolt"

	"github.com/berth-run/berth/internal/base/archive/archivetest"
	"github.com/berth-run/berth/internal/runtime/unpack"
)

// growth limits the size of a blob to a multiple of the compressed archive. A docker-archive names its layers by short
// paths, and containerd writes a manifest with their digests.
const growth = 100

// FuzzLoad imports any archive of images, with valid checksums, into a content store. The store's blobs are not much
// larger than the archive, and nothing changes outside the store. No snapshotter exists, which ends each import before
// it unpacks: FuzzLayer of package unpack reads layers.
func FuzzLoad(f *testing.F) {
	config := []byte(`{"architecture":"amd64","os":"linux","rootfs":{"type":"layers","diff_ids":[]}}`)
	manifest := encode(f, ocispec.Manifest{MediaType: ocispec.MediaTypeImageManifest,
		Config: descriptor(ocispec.MediaTypeImageConfig, config)})
	at := descriptor(ocispec.MediaTypeImageManifest, manifest)
	at.Annotations = map[string]string{ocispec.AnnotationRefName: "web:1"}
	blob := func(content []byte) string { return "blobs/sha256/" + digest.FromBytes(content).Encoded() }
	layout := encode(f, ocispec.ImageLayout{Version: ocispec.ImageLayoutVersion})
	file := func(name string, content []byte) archivetest.File {
		return archivetest.File{Name: name, Content: content}
	}
	f.Add(archivetest.Files(f, file(blob(config), config), file(blob(manifest), manifest), file("oci-layout", layout),
		file("index.json", encode(f, ocispec.Index{Manifests: []ocispec.Descriptor{at}}))))
	at.Digest, at.Annotations = digest.FromString("missing"), nil
	f.Add(archivetest.Files(f, file("../oci-layout", layout), file("oci-layout", layout),
		file("index.json", encode(f, ocispec.Index{Manifests: []ocispec.Descriptor{at}}))))
	f.Add(archivetest.Files(f, file("config.json", config), file("layer.tar", archivetest.Files(f)),
		file("manifest.json",
			[]byte(`[{"Config":"config.json","RepoTags":["web:1","../x",""],"Layers":["layer.tar"]}]`))))
	f.Add(archivetest.Sparse("layer.tar", 1<<20))
	f.Add(archivetest.Files(f,
		file("manifest.json", []byte(`[{"Config":"../outside","Layers":[null]},null]`))))
	f.Fuzz(func(t *testing.T, content []byte) {
		around := t.TempDir()
		client := storing(t, filepath.Join(around, "store"))
		ctx := namespaces.WithNamespace(t.Context(), criNamespace)
		content = archivetest.Corrected(content)
		plain, err := unpack.Limits{MaxRatio: growth, Harmless: 1}.Archive(bytes.NewReader(content), "")
		if err != nil {
			return
		}
		defer plain.Close()
		_, err = load(ctx, client, plain, "none")
		if err == nil {
			t.Fatal("an image was unpacked without a snapshotter")
		}
		images, failed := client.ImageService().List(ctx)
		isImported := strings.Contains(err.Error(), "snapshotter none")
		if failed != nil || isImported && len(images) == 0 {
			t.Errorf("imported, and lists %v, %v", images, failed)
		}
		err = filepath.WalkDir(filepath.Join(around, "store"), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Base(path) == "meta.db" {
				return err
			}
			if info, err := d.Info(); err != nil || info.Size() > growth*int64(len(content)+1) {
				t.Errorf("%s has many more bytes than the archive: %v", path, err)
			}
			return nil
		})
		entries, failed := os.ReadDir(around)
		if err = errors.Join(err, failed); err != nil || len(entries) != 1 {
			t.Errorf("beside the store are %v, %v", entries, err)
		}
	})
}

// storing returns a client of a content store and an image store in a directory, and of nothing else.
func storing(t *testing.T, dir string) *containerd.Client {
	t.Helper()
	blobs, err := local.NewStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	disk, err := bbolt.Open(filepath.Join(dir, "meta.db"), 0o600, &bbolt.Options{NoSync: true, NoFreelistSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := disk.Close(); err != nil {
			t.Error(err)
		}
	})
	db := metadata.NewDB(disk, blobs, nil)
	client, err := containerd.New("", containerd.WithServices(
		containerd.WithContentStore(db.ContentStore()), containerd.WithImageStore(metadata.NewImageStore(db)),
		containerd.WithLeasesService(metadata.NewLeaseManager(db)),
		containerd.WithSnapshotters(map[string]snapshots.Snapshotter{})))
	if err := errors.Join(err, db.Init(t.Context())); err != nil {
		t.Fatal(err)
	}
	return client
}

func encode(f *testing.F, v any) []byte {
	f.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		f.Fatal(err)
	}
	return text
}

func descriptor(media string, content []byte) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: media, Digest: digest.FromBytes(content), Size: int64(len(content))}
}
