package servertest

import (
	"context"
	"io"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/berth-run/berth/internal/api"
)

// images is an image store in memory. A load and a pull add nothing: they return images that SetImages has
// set.
type images struct{ *Agent }

// Load implements server.Images.
func (a images) Load(_ context.Context, archive io.Reader) ([]api.Image, error) {
	data, err := io.ReadAll(archive)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.loaded = data
	return a.images, err
}

// List implements server.Images.
func (a images) List(context.Context) ([]api.Image, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.images, nil
}

func (a images) find(name string) (api.Image, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, i := range a.images {
		if i.ID == name || slices.Contains(i.Tags, name) {
			return i, nil
		}
	}
	return api.Image{}, apierrors.NewNotFound(schema.GroupResource{Resource: "images"}, name)
}

// Save implements server.Images. The archive is the list of names.
func (a images) Save(_ context.Context, names []string, archive io.Writer) error {
	for _, name := range names {
		if _, err := a.find(name); err != nil {
			return err
		}
	}
	_, err := io.WriteString(archive, strings.Join(names, ","))
	return err
}

// Pull implements server.Images.
func (a images) Pull(_ context.Context, name string) (api.Image, error) { return a.find(name) }

// Pulls implements server.Images.
func (images) Pulls() []api.Pull {
	return []api.Pull{{Name: "docker.io/library/app:v2", Pods: []string{"default/web"}, Fetched: 1, Total: 2}}
}

// Remove implements server.Images.
func (a images) Remove(_ context.Context, name string, _ bool) (api.Image, error) {
	gone, err := a.find(name)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.images = slices.DeleteFunc(slices.Clone(a.images), func(i api.Image) bool { return i.ID == gone.ID })
	return gone, err
}

// Prune implements server.Images.
func (a images) Prune(_ context.Context, loaded bool) (gone []api.Image, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.images = slices.DeleteFunc(slices.Clone(a.images), func(i api.Image) bool {
		free := !i.InUse && !i.Pinned && (loaded || !i.Loaded)
		if free {
			gone = append(gone, i)
		}
		return free
	})
	return gone, nil
}

// Usage implements server.Images.
func (a images) Usage(context.Context) (api.ImageUsage, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	u := api.ImageUsage{Images: len(a.images), Capacity: 1000, Available: 900}
	for _, i := range a.images {
		u.Size += int64(i.Size)
	}
	return u, nil
}
