package runtime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images/archive"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/platforms"
	"github.com/distribution/reference"

	"github.com/berth-run/berth/internal/base/diskusage"
	"github.com/berth-run/berth/internal/runtime/layer"
	"github.com/berth-run/berth/internal/runtime/restore"
	"github.com/berth-run/berth/internal/runtime/unpack"
)

// Image is one name of an image in the store.
type Image struct {
	Name   string // full name, as the CRI lists it: docker.io/library/busybox:1.36
	Digest string // digest of the manifest or index that the name stands for
	Size   int64  // bytes of compressed content
}

// Import loads and unpacks the images of a docker-archive or OCI layout tar, plain or compressed. The CRI lists them
// when Import returns. An image that has no name in the archive is named after its digest. Import waits until the
// runtime is ready.
func (r *Runtime) Import(ctx context.Context, content io.Reader) ([]Image, error) {
	server, err := r.server(ctx)
	if err != nil {
		return nil, fmt.Errorf("import images: %w", err)
	}
	plain, err := r.config.Unpack.Archive(content, r.config.Root)
	if err != nil {
		return nil, fmt.Errorf("import images: %w", err)
	}
	defer plain.Close()
	images, err := server.importImages(namespaces.WithNamespace(ctx, criNamespace), plain)
	if err != nil {
		return nil, fmt.Errorf("import images: %w", err)
	}
	return images, nil
}

// importImages imports an uncompressed archive.
func (s *server) importImages(ctx context.Context, content io.Reader) ([]Image, error) {
	// One import at a time: containerd stages an archive's files under their names, and two archives could share names.
	s.importing.Lock()
	defer s.importing.Unlock()
	imported, err := load(ctx, s.client, content, s.snapshotter)
	if err != nil {
		return nil, err
	}
	for _, image := range imported {
		if err := restore.Mark(ctx, s.client, image.Name); err != nil {
			return nil, fmt.Errorf("find whether %s is a checkpoint: %w", image.Name, err)
		}
		// Without this call the CRI would list the new image only after an event.
		if err := s.images.UpdateImage(ctx, image.Name); err != nil {
			return nil, fmt.Errorf("list %s: %w", image.Name, err)
		}
	}
	if err := s.records.Sync(); err != nil {
		return nil, err
	}
	return imported, nil
}

// ImportInto imports into a containerd that runs as a separate process, at endpoint unix:///PATH. Other runtimes cannot
// import an archive, since the CRI has no call for it.
func ImportInto(ctx context.Context, endpoint string, content io.Reader) ([]Image, error) {
	images, err := importInto(ctx, endpoint, content)
	if err != nil {
		return nil, fmt.Errorf("import images into the runtime at %s, which must be a containerd: %w", endpoint, err)
	}
	return images, nil
}

func importInto(ctx context.Context, endpoint string, content io.Reader) (_ []Image, err error) {
	client, err := containerd.New(strings.TrimPrefix(endpoint, "unix://"),
		containerd.WithDefaultNamespace(criNamespace))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	plain, err := unpack.Limits{}.Archive(content, "")
	if err != nil {
		return nil, err
	}
	defer plain.Close()
	return load(ctx, client, plain, "")
}

// load imports an archive and unpacks its images for a snapshotter. An empty snapshotter is the server's default.
func load(ctx context.Context, client *containerd.Client, content io.Reader, snapshotter string) ([]Image, error) {
	records, err := client.Import(ctx, content,
		containerd.WithImageRefTranslator(fullName),
		containerd.WithDigestRef(archive.DigestTranslator("localhost/imported")),
		containerd.WithSkipDigestRef(func(name string) bool { return name != "" }))
	if err != nil {
		return nil, err
	}
	if len(records) == 0 {
		return nil, errors.New("the archive holds no image for this platform")
	}
	loaded := make([]Image, 0, len(records))
	for _, record := range records {
		image := containerd.NewImage(client, record)
		if err := image.Unpack(ctx, snapshotter); err != nil {
			return nil, fmt.Errorf("unpack %s: %w", record.Name, err)
		}
		size, err := image.Size(ctx)
		if err != nil {
			return nil, fmt.Errorf("measure %s: %w", record.Name, err)
		}
		loaded = append(loaded, Image{Name: record.Name, Digest: record.Target.Digest.String(), Size: size})
	}
	return loaded, nil
}

// Export writes images, given by their full names, as a tar that is both an OCI layout and a docker-archive. Of an
// image for several platforms it writes the image for this machine.
func (r *Runtime) Export(ctx context.Context, out io.Writer, names ...string) error {
	server, err := r.server(ctx)
	if err != nil {
		return fmt.Errorf("export images: %w", err)
	}
	if err := export(namespaces.WithNamespace(ctx, criNamespace), server.client, out, names); err != nil {
		return fmt.Errorf("export images: %w", err)
	}
	return nil
}

// ExportFrom exports from a containerd that runs as a separate process, at endpoint unix:///PATH.
func ExportFrom(ctx context.Context, endpoint string, out io.Writer, names ...string) error {
	client, err := containerd.New(strings.TrimPrefix(endpoint, "unix://"),
		containerd.WithDefaultNamespace(criNamespace))
	if err == nil {
		err = errors.Join(export(ctx, client, out, names), client.Close())
	}
	if err != nil {
		return fmt.Errorf("export images of the runtime at %s, which must be a containerd: %w", endpoint, err)
	}
	return nil
}

func export(ctx context.Context, client *containerd.Client, out io.Writer, names []string) error {
	opts := []archive.ExportOpt{archive.WithPlatform(platforms.Default())}
	for _, name := range names {
		opts = append(opts, archive.WithImage(client.ImageService(), name))
	}
	return client.Export(namespaces.WithNamespace(ctx, criNamespace), out, opts...)
}

// fullName completes an image name of an OCI layout. It returns "" for a bare tag, which names no image.
func fullName(name string) string {
	translated := archive.AddRefPrefix("-")(name)
	if translated != name {
		return ""
	}
	named, err := reference.ParseDockerRef(name)
	if err != nil {
		return ""
	}
	return named.String()
}

// LayerUsage measures the writable layer of a container now. The CRI reports what containerd measured in the last five
// minutes.
func (r *Runtime) LayerUsage(ctx context.Context, container string) (u diskusage.Usage, err error) {
	server, err := r.server(ctx)
	if err != nil {
		return u, err
	}
	return layer.Usage(namespaces.WithNamespace(ctx, criNamespace), server.client, server.snapshotter, container)
}

// FreeLayers waits until the writable layers of removed containers use no space, or until ctx ends.
func (r *Runtime) FreeLayers(ctx context.Context) error {
	server, err := r.server(ctx)
	if err == nil {
		err = layer.Free(namespaces.WithNamespace(ctx, criNamespace), server.client)
	}
	if err != nil {
		return fmt.Errorf("free the layers of removed containers: %w", err)
	}
	return nil
}
