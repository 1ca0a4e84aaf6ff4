package image

import (
	"archive/tar"
	"bytes"
	"cmp"
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

// programs is where the programs of the images are.
const programs = "github.com/berth-run/berth/test/"

// Build compiles the workload with the go command and writes an image of it to a docker-archive in dir, with a name
// such as "example.com/workload:1". It returns the archive's path. The workload is the image's entrypoint, /workload;
// its arguments choose what it does.
func Build(ctx context.Context, dir, imageName string) (path string, err error) {
	link := file{tar.Header{Typeflag: tar.TypeSymlink, Name: "tar", Linkname: "workload", Mode: 0o777},
		nil} // kubectl cp calls it
	return build(ctx, dir, "workload", []container{{name: imageName, entrypoint: []string{"/workload"}}}, link)
}

// BuildGuestbook likewise writes the images of docs/tutorial.md to one archive: two versions of a web application, and
// its database.
func BuildGuestbook(ctx context.Context, dir string) (path string, err error) {
	return build(ctx, dir, "guestbook", []container{
		{"example.com/guestbook:1", []string{"/guestbook", "web"}, "VERSION=1"},
		{"example.com/guestbook:2", []string{"/guestbook", "web"}, "VERSION=2"},
		{"example.com/database:1", []string{"/guestbook", "database"}, "VERSION=1"},
	})
}

// Pack writes an archive of one image that has the files of a tar file and runs a program in it.
func Pack(path, imageName, files string, entrypoint ...string) error {
	tag, err := name.NewTag(imageName)
	if err != nil {
		return fmt.Errorf("build image: %w", err)
	}
	layer, err := tarball.LayerFromFile(files)
	if err != nil {
		return fmt.Errorf("build image %s: %w", tag, err)
	}
	built, err := configure(container{name: imageName, entrypoint: entrypoint}, layer)
	if err != nil {
		return fmt.Errorf("build image %s: %w", tag, err)
	}
	if err := tarball.WriteToFile(path, tag, built); err != nil {
		return fmt.Errorf("build image %s: %w", tag, err)
	}
	return nil
}

// container is the configuration of one image.
type container struct {
	name       string
	entrypoint []string
	variable   string // one more environment variable; "" for none
}

// build compiles a program and writes an archive of images with its files.
func build(ctx context.Context, dir, program string, containers []container, more ...file) (path string, err error) {
	binary := filepath.Join(dir, program)
	compile := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w",
		"-o", binary, programs+program)
	compile.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := compile.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build image of %s: go build: %w\n%s", program, err, out)
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		return "", fmt.Errorf("build image of %s: %w", program, err)
	}
	files := append([]file{{tar.Header{Typeflag: tar.TypeReg, Name: program, Mode: 0o755}, content}}, more...)
	images := map[name.Tag]v1.Image{}
	for _, c := range containers {
		tag, err := name.NewTag(c.name)
		if err != nil {
			return "", fmt.Errorf("build image: %w", err)
		}
		if images[tag], err = pack(c, files); err != nil {
			return "", fmt.Errorf("build image %s: %w", tag, err)
		}
	}
	path = filepath.Join(dir, program+".tar")
	if err := tarball.MultiWriteToFile(path, images); err != nil {
		return "", fmt.Errorf("build image of %s: %w", program, err)
	}
	return path, nil
}

// Users and groups of the image: the user member (7000) is also in the group team (7001).
const (
	passwd = "root:x:0:0::/:\nmember:x:7000:7000::/:\n"
	groups = "root:x:0:\nmember:x:7000:\nteam:x:7001:member\n"
)

// file is an entry of a layer.
type file struct {
	header  tar.Header
	content []byte
}

// pack makes an image of one layer with the users and groups, /tmp, and files.
func pack(c container, files []file) (v1.Image, error) {
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for _, f := range append([]file{
		{tar.Header{Typeflag: tar.TypeDir, Name: "etc", Mode: 0o755}, nil},
		{tar.Header{Typeflag: tar.TypeReg, Name: "etc/passwd", Mode: 0o644}, []byte(passwd)},
		{tar.Header{Typeflag: tar.TypeReg, Name: "etc/group", Mode: 0o644}, []byte(groups)},
		{tar.Header{Typeflag: tar.TypeDir, Name: "tmp", Mode: 0o1777}, nil},
	}, files...) {
		f.header.Size = int64(len(f.content))
		if err := w.WriteHeader(&f.header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	content, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(layer.Bytes())), nil
	})
	if err != nil {
		return nil, err
	}
	return configure(c, content)
}

// configure makes an image of a layer.
func configure(c container, layer v1.Layer) (v1.Image, error) {
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	// The go command builds the programs for $GOARCH too.
	config.Architecture, config.OS = cmp.Or(os.Getenv("GOARCH"), runtime.GOARCH), "linux"
	config.Config.Entrypoint = c.entrypoint
	config.Config.Env = []string{"PATH=/"}
	if c.variable != "" {
		config.Config.Env = append(config.Config.Env, c.variable)
	}
	return mutate.ConfigFile(image, config)
}
