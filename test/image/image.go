package image

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

const workload = "github.com/berth-run/berth/test/workload"

// Build compiles the workload with the go command and writes an image of it to a docker-archive in dir, with a name
// such as "example.com/workload:1". It returns the archive's path. The workload is the image's entrypoint, /workload;
// its arguments choose what it does.
func Build(ctx context.Context, dir, imageName string) (path string, err error) {
	tag, err := name.NewTag(imageName)
	if err != nil {
		return "", fmt.Errorf("build image: %w", err)
	}
	binary := filepath.Join(dir, "workload")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", binary,
		workload)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build image %s: go build: %w\n%s", tag, err, out)
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		return "", fmt.Errorf("build image %s: %w", tag, err)
	}
	built, err := pack(content)
	if err != nil {
		return "", fmt.Errorf("build image %s: %w", tag, err)
	}
	path = filepath.Join(dir, "workload.tar")
	if err := tarball.WriteToFile(path, tag, built); err != nil {
		return "", fmt.Errorf("build image %s: %w", tag, err)
	}
	return path, nil
}

// Users and groups of the image: the user member (7000) is also in the group team (7001).
const (
	passwd = "root:x:0:0::/:\nmember:x:7000:7000::/:\n"
	groups = "root:x:0:\nmember:x:7000:\nteam:x:7001:member\n"
)

// pack makes an image of one layer with the program, the users and groups, /tmp, and tar as a link to the program.
func pack(program []byte) (v1.Image, error) {
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	entries := []struct {
		header  tar.Header
		content []byte
	}{
		{tar.Header{Typeflag: tar.TypeDir, Name: "etc", Mode: 0o755}, nil},
		{tar.Header{Typeflag: tar.TypeReg, Name: "etc/passwd", Mode: 0o644}, []byte(passwd)},
		{tar.Header{Typeflag: tar.TypeReg, Name: "etc/group", Mode: 0o644}, []byte(groups)},
		{tar.Header{Typeflag: tar.TypeDir, Name: "tmp", Mode: 0o1777}, nil},
		{tar.Header{Typeflag: tar.TypeReg, Name: "workload", Mode: 0o755}, program},
		{tar.Header{Typeflag: tar.TypeSymlink, Name: "tar", Linkname: "workload", Mode: 0o777},
			nil}, // kubectl cp calls it
	}
	for _, e := range entries {
		e.header.Size = int64(len(e.content))
		if err := w.WriteHeader(&e.header); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	files, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(layer.Bytes())), nil
	})
	if err != nil {
		return nil, err
	}
	image, err := mutate.AppendLayers(empty.Image, files)
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.Architecture, config.OS = runtime.GOARCH, "linux"
	config.Config.Entrypoint = []string{"/workload"}
	config.Config.Env = []string{"PATH=/"}
	return mutate.ConfigFile(image, config)
}
