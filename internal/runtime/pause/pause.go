package pause

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	goruntime "runtime"

	containerd "github.com/containerd/containerd/v2/client"
)

// Prefix begins the names of all images of pause containers.
const Prefix = "localhost/berth-pause:"

// tagLength is the number of hexadecimal digits in a tag.
const tagLength = 12

// Image returns the name of the image of a program with this SHA-256 in hexadecimal.
func Image(sum string) string { return Prefix + sum[:tagLength] }

// Images has the images of pause containers in containerd.
type Images struct {
	// Client has the namespace of the CRI.
	Client      *containerd.Client
	Snapshotter string
	// Current is the name of the image that new pods need, or empty if no handler needs one.
	Current string
}

// Ensure imports the current image if it is not in the store. open returns the program of holders.
func (i Images) Ensure(ctx context.Context, open func() (io.ReadCloser, error)) error {
	if i.Current == "" {
		return nil
	}
	present, err := i.Client.ListImages(ctx, fmt.Sprintf("name==%q", i.Current))
	if err != nil {
		return err
	}
	if len(present) == 0 {
		if err := i.load(ctx, open); err != nil {
			return err
		}
	}
	image, err := i.Client.GetImage(ctx, i.Current)
	if err != nil {
		return err
	}
	return image.Unpack(ctx, i.Snapshotter) // does nothing for an unpacked one
}

func (i Images) load(ctx context.Context, open func() (io.ReadCloser, error)) error {
	program, err := open()
	if err != nil {
		return err
	}
	defer program.Close()
	archive, err := Archive(i.Current, program)
	if err != nil {
		return err
	}
	_, err = i.Client.Import(ctx, bytes.NewReader(archive))
	return err
}

// Sweep removes the images that are not current, once no sandbox with a pause container is left. They are pinned, so
// that garbage collection keeps them.
func (i Images) Sweep(ctx context.Context) error {
	images, err := i.Client.ListImages(ctx, "name~=^"+Prefix)
	if err != nil || len(images) == 0 {
		return err
	}
	boxes, err := i.Client.Containers(ctx, `labels."io.cri-containerd.kind"==sandbox`)
	if err != nil || len(boxes) > 0 {
		return err
	}
	for _, image := range images {
		if image.Name() == i.Current {
			continue
		}
		if err := i.Client.ImageService().Delete(ctx, image.Name()); err != nil {
			return err
		}
	}
	return nil
}

// Archive returns a docker-archive with an image of the program of holders, which waits in it. The same program gives
// the same bytes.
func Archive(name string, program io.Reader) ([]byte, error) {
	content, err := io.ReadAll(program)
	if err != nil {
		return nil, fmt.Errorf("read the program of pause containers: %w", err)
	}
	layer, err := pack(file{"holder", 0o755, content})
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(layer)
	config, err := json.Marshal(map[string]any{
		"architecture": goruntime.GOARCH,
		"os":           "linux",
		// The holder needs no privilege. "p" makes it wait without a starter.
		"config": map[string]any{"Entrypoint": []string{"/holder", "pause", "p"}, "User": "65535:65535"},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(sum[:])}},
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
	return pack(file{"layer.tar", 0o644, layer}, file{"config.json", 0o644, config},
		file{"manifest.json", 0o644, manifest})
}

type file struct {
	name    string
	mode    int64
	content []byte
}

// pack returns a tar of files.
func pack(files ...file) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		header := tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.content))}
		if err := w.WriteHeader(&header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}
