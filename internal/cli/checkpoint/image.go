package checkpoint

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"runtime"

	metadata "github.com/checkpoint-restore/checkpointctl/lib"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// layer is the archive of a checkpoint as the layer of an image.
type layer struct {
	content io.Reader
	digest  digest.Digest
	size    int64
}

// repository is where checkpoints are in the image store of this node. No registry has it.
const repository = "localhost/berth-checkpoint/"

// imageName returns the name of the image of a checkpoint. It contains the digest, so that no other archive has it.
func (l layer) imageName(pod string) string { return repository + pod + ":" + l.digest.Encoded()[:32] }

// blob is a small part of an image.
type blob struct {
	ocispec.Descriptor
	text []byte
}

func blobOf(mediaType string, value any) (blob, error) {
	text, err := json.Marshal(value)
	return blob{
		ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(text), Size: int64(len(text))}, text,
	}, err
}

// write writes an OCI image layout of one image with the layer, as a tar stream.
func (l layer) write(to io.Writer, name, container string) error {
	config, err := blobOf(ocispec.MediaTypeImageConfig, ocispec.Image{
		Platform: ocispec.Platform{Architecture: runtime.GOARCH, OS: runtime.GOOS},
		RootFS:   ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{l.digest}},
	})
	if err != nil {
		return err
	}
	manifest, err := blobOf(ocispec.MediaTypeImageManifest, ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
		Config:      config.Descriptor,
		Layers:      []ocispec.Descriptor{{MediaType: ocispec.MediaTypeImageLayer, Digest: l.digest, Size: l.size}},
		Annotations: map[string]string{metadata.CheckpointAnnotationName: container},
	})
	if err != nil {
		return err
	}
	manifest.Annotations = map[string]string{"io.containerd.image.name": name, ocispec.AnnotationRefName: name}
	index, err := blobOf(ocispec.MediaTypeImageIndex, ocispec.Index{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex,
		Manifests: []ocispec.Descriptor{manifest.Descriptor},
	})
	if err != nil {
		return err
	}
	layout, err := blobOf("", ocispec.ImageLayout{Version: ocispec.ImageLayoutVersion})
	if err != nil {
		return err
	}
	w := tar.NewWriter(to)
	err = errors.Join(add(w, ocispec.ImageLayoutFile, layout.Size, bytes.NewReader(layout.text)),
		add(w, path(l.digest), l.size, l.content),
		add(w, path(config.Digest), config.Size, bytes.NewReader(config.text)),
		add(w, path(manifest.Digest), manifest.Size, bytes.NewReader(manifest.text)),
		add(w, ocispec.ImageIndexFile, index.Size, bytes.NewReader(index.text)))
	return errors.Join(err, w.Close())
}

func path(d digest.Digest) string {
	return ocispec.ImageBlobsDir + "/" + d.Algorithm().String() + "/" + d.Encoded()
}

func add(w *tar.Writer, name string, size int64, content io.Reader) error {
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o444, Size: size}); err != nil {
		return err
	}
	_, err := io.Copy(w, content)
	return err
}
