package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/retry"
)

const (
	// listPatience is how long to wait until the runtime lists an imported image.
	listPatience = 5 * time.Second
	listPause    = 20 * time.Millisecond
)

// list returns the images with these names as the runtime lists them, each once.
func (e *Engine) list(ctx context.Context, names []string) (images []*runtimeapi.Image, err error) {
	for _, name := range names {
		i, err := e.find(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("look for %s: %w", name, err)
		}
		if !slices.ContainsFunc(images, func(o *runtimeapi.Image) bool { return o.Id == i.Id }) {
			images = append(images, i)
		}
	}
	return images, nil
}

func (e *Engine) find(ctx context.Context, name string) (*runtimeapi.Image, error) {
	ctx, cancel := context.WithTimeout(ctx, listPatience)
	defer cancel()
	for {
		r, err := e.Client.Images.ImageStatus(ctx,
			&runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: name}})
		if err != nil {
			return nil, err
		}
		if r.Image != nil {
			return r.Image, nil
		}
		if retry.Sleep(ctx, listPause) != nil {
			return nil, errors.New("the runtime does not list it")
		}
	}
}
