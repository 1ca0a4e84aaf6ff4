package pause

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/berth-run/berth/internal/docker"
)

// Puller pulls a configured image.
type Puller interface {
	Pull(ctx context.Context, image string) error
}

// Image is the image of pause containers.
type Image struct {
	engine *docker.Client
	puller Puller
	// program is nil for a configured image.
	program []byte
	name    string

	mu sync.Mutex
}

// New returns the image with a program, or the configured one if that has a name.
func New(engine *docker.Client, puller Puller, program []byte, configured string) *Image {
	if configured != "" {
		return &Image{engine: engine, puller: puller, name: configured}
	}
	return &Image{engine: engine, program: program, name: Name(program)}
}

// Name is the image's name.
func (i *Image) Name() string { return i.name }

// Ensure loads or pulls the image if the Engine does not have it.
func (i *Image) Ensure(ctx context.Context) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	_, err := i.engine.ImageInspect(ctx, i.name)
	if !docker.IsNotFound(err) {
		return docker.Error(err)
	}
	if i.program == nil {
		return i.puller.Pull(ctx, i.name)
	}
	content, err := archive(i.program)
	if err != nil {
		return err
	}
	loaded, err := i.engine.ImageLoad(ctx, bytes.NewReader(content))
	if err != nil {
		return docker.Error(err)
	}
	defer func() { _ = loaded.Close() }() // it is only read
	output, err := io.ReadAll(loaded)
	if err != nil {
		return docker.Error(err)
	}
	if _, err := i.engine.ImageInspect(ctx, i.name); err != nil {
		return fmt.Errorf("load the pause image: %w: %s", docker.Error(err), output)
	}
	return nil
}
