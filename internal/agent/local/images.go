package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/answer"
	"github.com/berth-run/berth/internal/pod/status"
	"github.com/berth-run/berth/internal/pod/steps/image"
	"github.com/berth-run/berth/internal/pod/steps/image/garbage"
)

// Images is the image store of the runtime. It implements server.Images.
type Images struct {
	Archives Archives
	Store    *garbage.Collector
	Puller   *image.Images
	Pods     Retrier
}

// Archives reads and writes archives of images.
type Archives interface {
	Import(ctx context.Context, archive io.Reader) ([]*runtimeapi.Image, error)
	Export(ctx context.Context, archive io.Writer, names ...string) error
}

// Retrier retries the parts of pods that have failed with a matching error.
type Retrier interface {
	Retry(matches func(error) bool)
}

// wantsImage reports whether an error is a failed image pull.
func wantsImage(err error) bool { return status.PullFailure(err) != nil }

// Load implements server.Images.
func (x Images) Load(ctx context.Context, archive io.Reader) ([]api.Image, error) {
	loaded, err := x.Archives.Import(ctx, archive)
	if err != nil {
		return nil, err
	}
	var brought []api.Image
	var ids []string
	for _, i := range loaded {
		ids = append(ids, i.Id)
		brought = append(brought,
			api.Image{ID: i.Id, Tags: i.RepoTags, Digests: i.RepoDigests, Size: i.Size, Pinned: i.Pinned, Loaded: true})
	}
	if err := x.Store.Imported(ids...); err != nil {
		return nil, fmt.Errorf("keep the images from being removed by themselves: %w", err)
	}
	x.Pods.Retry(wantsImage) // the image of a failed pull may be here now
	return brought, nil
}

// Save implements server.Images.
func (x Images) Save(ctx context.Context, names []string, archive io.Writer) error {
	var full []string
	for _, name := range names {
		i, err := x.Store.Find(ctx, name)
		if err != nil {
			return imageError(err)
		}
		full = append(full, exportNames(i, name)...)
	}
	return x.Archives.Export(ctx, archive, full...)
}

// exportNames returns the names to save an image under: the given name, or all tags of the image if the user gave an
// id.
func exportNames(i garbage.Image, given string) []string {
	if named := garbage.FullName(given); slices.Contains(slices.Concat(i.Tags, i.Digests), named) {
		return []string{named}
	}
	switch {
	case len(i.Tags) > 0:
		return i.Tags
	case len(i.Digests) > 0:
		return i.Digests[:1]
	}
	return []string{i.ID}
}

// List implements server.Images.
func (x Images) List(ctx context.Context) ([]api.Image, error) {
	all, err := x.Store.List(ctx)
	return apiImages(all), err
}

func apiImages(all []garbage.Image) []api.Image {
	out := make([]api.Image, len(all))
	for i, m := range all {
		out[i] = api.Image{ID: m.ID, Tags: m.Tags, Digests: m.Digests, Size: uint64(m.Size), Pinned: m.Pinned,
			Loaded: m.Imported, InUse: m.Used}
		if !m.LastUsed.IsZero() {
			out[i].LastUsed = new(metav1.NewTime(m.LastUsed))
		}
	}
	return out
}

// Pull implements server.Images.
func (x Images) Pull(ctx context.Context, name string) (api.Image, error) {
	i, err := x.Puller.Pull(ctx, name)
	if err != nil {
		return api.Image{}, err
	}
	return api.Image{ID: i.Id, Tags: i.RepoTags, Digests: i.RepoDigests, Size: i.Size, Pinned: i.Pinned}, nil
}

// Pulls implements server.Images.
func (x Images) Pulls() []api.Pull {
	under := x.Puller.Pulls()
	all := make([]api.Pull, len(under))
	for i, p := range under {
		all[i] = api.Pull{
			Name: p.Image, Pods: p.Pods, Waiting: p.Waiting, Stalled: p.Stalled,
			Fetched: p.Fetched, Total: p.Total, PerSecond: p.PerSecond, Elapsed: p.Elapsed.Seconds(),
		}
	}
	return all
}

// Remove implements server.Images.
func (x Images) Remove(ctx context.Context, name string, force bool) (api.Image, error) {
	gone, err := x.Store.Remove(ctx, name, force)
	if err != nil {
		return api.Image{}, imageError(err)
	}
	return apiImages([]garbage.Image{gone})[0], nil
}

// imageError turns an error about the name of an image into an error of the API.
func imageError(err error) error {
	failure := func(code int32, why metav1.StatusReason, next string) error {
		return answer.Next(
			&apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: why,
				Message: err.Error()}}, next)
	}
	switch {
	case errors.Is(err, garbage.ErrNoImage):
		return failure(http.StatusNotFound, metav1.StatusReasonNotFound, `list the images with "berth image ls"`)
	case errors.Is(err, garbage.ErrAmbiguous):
		return answer.BadRequest(err.Error(), "give more of the id")
	case errors.Is(err, garbage.ErrInUse):
		return failure(http.StatusConflict, metav1.StatusReasonConflict, "delete the pods that use it, or give --force")
	}
	return err
}

// Prune implements server.Images.
func (x Images) Prune(ctx context.Context, loaded bool) ([]api.Image, error) {
	gone, err := x.Store.Prune(ctx, loaded)
	return apiImages(gone), err
}

// Usage implements server.Images.
func (x Images) Usage(ctx context.Context) (api.ImageUsage, error) {
	u, err := x.Store.Usage(ctx)
	return api.ImageUsage{
		Images: u.Images, InUse: u.Used, Size: u.Size, Reclaimable: u.Reclaimable, Capacity: u.Disk.Capacity,
		Available: u.Disk.Available,
	}, err
}
