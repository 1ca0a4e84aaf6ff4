package dockershim

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/distribution/reference"

	"github.com/berth-run/berth/internal/docker"
)

// Import loads the images of an archive, and returns their names.
func (s *Server) Import(ctx context.Context, archive io.Reader) (names []string, err error) {
	loaded, err := s.client.ImageLoad(ctx, archive)
	if err != nil {
		return nil, docker.Error(err)
	}
	defer func() { _ = loaded.Close() }() // it is only read
	output, err := io.ReadAll(loaded)
	if err != nil {
		return nil, docker.Error(err)
	}
	names, reason := loadedNames(string(output))
	if reason != "" {
		return names, fmt.Errorf("load images: %s", reason)
	}
	return names, nil
}

// Export writes images as an archive.
func (s *Server) Export(ctx context.Context, archive io.Writer, names ...string) error {
	saved, err := s.client.ImageSave(ctx, names)
	if err != nil {
		return docker.Error(err)
	}
	defer func() { _ = saved.Close() }() // it is only read
	_, err = io.Copy(archive, saved)
	return docker.Error(err)
}

// PullProgress returns how many bytes of an image were fetched, how many there are to fetch (0: not known yet), and how
// many of them were unpacked. All are 0 if the image is not being pulled.
func (s *Server) PullProgress(image string) (fetched, total, unpacked int64) {
	return s.images.PullProgress(image)
}

// fullName returns the name of an image with its registry; an ID stays as it is.
func fullName(name string) string {
	if named, err := reference.ParseNormalizedNamed(name); err == nil && !strings.HasPrefix(name, "sha256:") {
		return named.String()
	}
	return name
}
