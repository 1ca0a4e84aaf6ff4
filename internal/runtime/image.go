package runtime

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	goruntime "runtime"
	"strings"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images/archive"
	"github.com/containerd/containerd/v2/pkg/archive/compression"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/distribution/reference"
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
	plain, err := compression.DecompressStream(content)
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
		// Without this call the CRI would list the new image only after an event.
		if err := s.images.UpdateImage(ctx, image.Name); err != nil {
			return nil, fmt.Errorf("list %s: %w", image.Name, err)
		}
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
	plain, err := compression.DecompressStream(content)
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

// pauseImageName is the name of a pause program's image. Its tag is a hash of the program.
func pauseImageName(p program) string {
	return "localhost/berth-pause:" + p.sum[:keyLength]
}

// ensurePause imports the pause image if it is not in the store.
func (s *server) ensurePause(ctx context.Context, pause program) error {
	ctx = namespaces.WithNamespace(ctx, criNamespace)
	name := pauseImageName(pause)
	image, err := s.client.GetImage(ctx, name)
	if err == nil {
		unpacked, err := image.IsUnpacked(ctx, s.snapshotter)
		if err == nil && unpacked {
			return nil
		}
	} else if !errdefs.IsNotFound(err) {
		return fmt.Errorf("look up pause image: %w", err)
	}
	content, err := pause.open()
	if err != nil {
		return fmt.Errorf("read pause program: %w", err)
	}
	defer content.Close()
	binary, err := io.ReadAll(content)
	if err != nil {
		return fmt.Errorf("read pause program: %w", err)
	}
	tarball, err := pauseArchive(name, binary)
	if err != nil {
		return fmt.Errorf("make pause image: %w", err)
	}
	if _, err := s.importImages(ctx, bytes.NewReader(tarball)); err != nil {
		return fmt.Errorf("import pause image: %w", err)
	}
	return nil
}

// pauseArchive returns a docker-archive with one image, which holds the binary as /pause. The same binary gives the
// same bytes.
func pauseArchive(name string, binary []byte) ([]byte, error) {
	layer, err := tarOf(tarFile{"pause", 0o755, binary})
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(layer)
	config, err := json.Marshal(map[string]any{
		"architecture": goruntime.GOARCH,
		"os":           "linux",
		"config":       map[string]any{"Entrypoint": []string{"/pause"}, "User": "65535:65535"},
		"rootfs":       map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(sum[:])}},
	})
	if err != nil {
		return nil, err
	}
	manifest, err := json.Marshal([]any{map[string]any{
		"Config": "config.json", "RepoTags": []string{name}, "Layers": []string{"layer.tar"},
	}})
	if err != nil {
		return nil, err
	}
	return tarOf(
		tarFile{"layer.tar", 0o644, layer},
		tarFile{"config.json", 0o644, config},
		tarFile{"manifest.json", 0o644, manifest})
}

type tarFile struct {
	name    string
	mode    int64
	content []byte
}

func tarOf(files ...tarFile) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, file := range files {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: file.name, Mode: file.mode, Size: int64(len(file.content))}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(file.content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
