package servertest

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/answer"
)

// images is an image store in memory. A load and a pull add nothing: they return images that SetImages has
// set.
type images struct {
	mu     sync.Mutex
	all    []api.Image
	loaded []byte
	failed error // the result of loads
}

// Load implements server.Images.
func (m *images) Load(_ context.Context, archive io.Reader) ([]api.Image, error) {
	data, err := io.ReadAll(archive)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.loaded = data
	return m.all, errors.Join(err, m.failed)
}

// List implements server.Images.
func (m *images) List(context.Context) ([]api.Image, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.all, nil
}

func (m *images) find(name string) (api.Image, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, i := range m.all {
		if i.ID == name || slices.Contains(i.Tags, name) {
			return i, nil
		}
	}
	return api.Image{}, answer.Next(apierrors.NewNotFound(schema.GroupResource{Resource: "images"}, name),
		`list the images with "berth image ls"`)
}

// Save implements server.Images. The archive is the list of names.
func (m *images) Save(_ context.Context, names []string, archive io.Writer) error {
	for _, name := range names {
		if _, err := m.find(name); err != nil {
			return err
		}
	}
	_, err := io.WriteString(archive, strings.Join(names, ","))
	return err
}

// Pull implements server.Images.
func (m *images) Pull(_ context.Context, name string) (api.Image, error) { return m.find(name) }

// Pulls implements server.Images.
func (*images) Pulls() []api.Pull {
	return []api.Pull{{Name: "docker.io/library/app:v2", Pods: []string{"default/web"}, Fetched: 1, Total: 2}}
}

// Remove implements server.Images.
func (m *images) Remove(_ context.Context, name string, _ bool) (api.Image, error) {
	gone, err := m.find(name)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all = slices.DeleteFunc(slices.Clone(m.all), func(i api.Image) bool { return i.ID == gone.ID })
	return gone, err
}

// Prune implements server.Images.
func (m *images) Prune(_ context.Context, loaded bool) (gone []api.Image, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all = slices.DeleteFunc(slices.Clone(m.all), func(i api.Image) bool {
		free := !i.InUse && !i.Pinned && (loaded || !i.Loaded)
		if free {
			gone = append(gone, i)
		}
		return free
	})
	return gone, nil
}

// Usage implements server.Images.
func (m *images) Usage(context.Context) (api.ImageUsage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	u := api.ImageUsage{Images: len(m.all), Capacity: 1000, Available: 900}
	for _, i := range m.all {
		u.Size += int64(i.Size)
	}
	return u, nil
}
