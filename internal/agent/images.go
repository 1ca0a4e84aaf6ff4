package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/answer"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/status"
	"github.com/berth-run/berth/internal/pod/steps/image"
	"github.com/berth-run/berth/internal/pod/steps/image/credential"
	"github.com/berth-run/berth/internal/pod/steps/image/garbage"
	"github.com/berth-run/berth/internal/pod/steps/image/record"
	"github.com/berth-run/berth/internal/record/event"
)

// imageStore keeps the images of the node.
type imageStore struct {
	records *record.Records
	garbage *garbage.Collector
}

// build makes the parts that bring and remove images.
func (x images) build() error {
	a, c := x.a, x.a.config
	var providers []credential.Provider
	if c.Providers.Config != "" {
		var err error
		if providers, err = credential.Load(c.Providers.Config, c.Providers.BinDir); err != nil {
			return err
		}
	}
	a.store.records = record.New(record.Options{
		Dir:    filepath.Join(c.RootDir, "image_manager"),
		Policy: record.Policy{Verification: c.Images.Verification, Allowlist: c.Images.Allowlist}, Log: a.log,
	})
	a.store.garbage = garbage.New(garbage.Options{
		Images: a.engine.Client.Images, Containers: a.engine.Client.Runtime, Wanted: x.wanted, Removed: x.gone,
		Dir:    c.RootDir,
		Synced: []<-chan struct{}{a.sources.Synced(), a.pleg.Synced()},
		Thresholds: garbage.Thresholds{
			High: c.Images.HighThreshold, Low: c.Images.LowThreshold, MinAge: c.Images.MinimumAge,
			MaxAge: c.Images.MaximumAge,
		},
		Events: a.events, Node: event.NodeRef(c.NodeName),
		Now: time.Now, Log: a.log,
	})
	if err := errors.Join(a.store.records.Load(), a.store.garbage.Load()); err != nil {
		return err
	}
	home, err := os.UserHomeDir()
	if err != nil {
		home = "" // a service without HOME
	}
	o := image.Options{
		Secrets: a.objects,
		Client:  a.engine.Client.Images, Events: a.events, Parallel: c.Runtime.ParallelPulls, Records: a.store.records,
		Pulled: a.store.garbage.Look,
		Keys: credential.New(credential.Options{RootDir: c.RootDir, HomeDir: home, Providers: providers,
			Environ: os.Environ(), Accounts: a.cluster.Puller(), Now: time.Now}),
		Now: time.Now, Log: a.log,
	}
	if progress := a.engine.Progress(); progress != nil {
		o.Progress = progress
	}
	a.steps.images = image.New(o)
	return nil
}

// wanted are the images that pods of the node name.
func (x images) wanted() []string {
	names := slices.Clone(x.a.engine.SandboxImages)
	for _, p := range x.a.admitted() {
		for _, c := range pod.Containers(p) {
			names = append(names, c.Image)
		}
		for _, v := range p.Spec.Volumes {
			if v.Image != nil {
				names = append(names, v.Image.Reference)
			}
		}
	}
	return names
}

func (x images) gone(id string) {
	if err := x.a.store.records.Forget(id); err != nil {
		x.a.log.Warn("forget what a removed image was pulled with", "image", id, "err", err)
	}
}

// images is the runtime's image store for the local API.
type images struct{ a *Agent }

// wantsImage says whether something failed for want of an image.
func wantsImage(err error) bool { return status.PullFailure(err) != nil }

// Load implements server.Images.
func (x images) Load(ctx context.Context, archive io.Reader) ([]api.Image, error) {
	loaded, err := x.a.engine.Import(ctx, archive)
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
	if err := x.a.store.garbage.Imported(ids...); err != nil {
		return nil, fmt.Errorf("keep the images from being removed by themselves: %w", err)
	}
	x.a.fleet.Retry(wantsImage) // what waits for its next pull may have its image now
	return brought, nil
}

// Save implements server.Images.
func (x images) Save(ctx context.Context, names []string, archive io.Writer) error {
	var full []string
	for _, name := range names {
		i, err := x.a.store.garbage.Find(ctx, name)
		if err != nil {
			return imageError(err)
		}
		full = append(full, exportNames(i, name)...)
	}
	return x.a.engine.Export(ctx, archive, full...)
}

// exportNames are the names to save an image under: the one that was given, or
// all its tags if that was an id.
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
func (x images) List(ctx context.Context) ([]api.Image, error) {
	all, err := x.a.store.garbage.List(ctx)
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
func (x images) Pull(ctx context.Context, name string) (api.Image, error) {
	i, err := x.a.steps.images.Pull(ctx, name)
	if err != nil {
		return api.Image{}, err
	}
	return api.Image{ID: i.Id, Tags: i.RepoTags, Digests: i.RepoDigests, Size: i.Size, Pinned: i.Pinned}, nil
}

// Pulls implements server.Images.
func (x images) Pulls() []api.Pull {
	under := x.a.steps.images.Pulls()
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
func (x images) Remove(ctx context.Context, name string, force bool) (api.Image, error) {
	gone, err := x.a.store.garbage.Remove(ctx, name, force)
	if err != nil {
		return api.Image{}, imageError(err)
	}
	return apiImages([]garbage.Image{gone})[0], nil
}

// imageError gives an error of a name its place in the API's errors.
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
func (x images) Prune(ctx context.Context, loaded bool) ([]api.Image, error) {
	gone, err := x.a.store.garbage.Prune(ctx, loaded)
	return apiImages(gone), err
}

// Usage implements server.Images.
func (x images) Usage(ctx context.Context) (api.ImageUsage, error) {
	u, err := x.a.store.garbage.Usage(ctx)
	return api.ImageUsage{
		Images: u.Images, InUse: u.Used, Size: u.Size, Reclaimable: u.Reclaimable, Capacity: u.Disk.Capacity,
		Available: u.Disk.Available,
	}, err
}
