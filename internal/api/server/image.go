package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/distribution/reference"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/answer"
	"github.com/berth-run/berth/internal/api/query"
)

// Images is the runtime's image store.
type Images interface {
	// Load imports an image archive and returns the loaded images. The archive is an OCI layout or the
	// output of docker save: a tar that may be compressed.
	Load(ctx context.Context, archive io.Reader) ([]api.Image, error)
	List(ctx context.Context) ([]api.Image, error)
	// Save writes the images with these names or ids as an archive.
	Save(ctx context.Context, names []string, archive io.Writer) error
	// Pull pulls an image and returns when it is complete. Until then, Pulls reports its progress.
	Pull(ctx context.Context, name string) (api.Image, error)
	Pulls() []api.Pull
	Remove(ctx context.Context, name string, force bool) (api.Image, error)
	// Prune removes the unused images. With loaded, it also removes unused images that were loaded from archives.
	Prune(ctx context.Context, loaded bool) ([]api.Image, error)
	Usage(ctx context.Context) (api.ImageUsage, error)
}

// imageRoutes works on the runtime's images.
type imageRoutes struct{ images Images }

func (s imageRoutes) list(w http.ResponseWriter, r *http.Request) error {
	images, err := s.images.List(r.Context())
	if err != nil {
		return fmt.Errorf("list images: %w", err)
	}
	answer.WriteJSON(w, http.StatusOK, imageList(images))
	return nil
}

func (s imageRoutes) load(w http.ResponseWriter, r *http.Request) error {
	images, err := s.images.Load(r.Context(), r.Body)
	if err != nil {
		return fmt.Errorf("load image archive: %w", err)
	}
	answer.WriteJSON(w, http.StatusOK, imageList(images))
	return nil
}

func imageList(images []api.Image) api.ImageList {
	return api.ImageList{TypeMeta: api.Type("ImageList"), Items: append([]api.Image{}, images...)}
}

// imageName returns the required parameter name, and records an error if it is missing.
func imageName(q *query.Query) string {
	name := q.Get("name")
	if name == "" && q.Err == nil {
		q.Err = answer.BadRequest("no image is named", "give the parameter name")
	}
	return name
}

func (s imageRoutes) remove(w http.ResponseWriter, r *http.Request) error {
	q := query.Of(r)
	name, force := imageName(q), q.Flag("force", false)
	if q.Err != nil {
		return q.Err
	}
	gone, err := s.images.Remove(r.Context(), name, force)
	if err != nil {
		return err
	}
	answer.WriteJSON(w, http.StatusOK, imageList([]api.Image{gone}))
	return nil
}

func (s imageRoutes) prune(w http.ResponseWriter, r *http.Request) error {
	q := query.Of(r)
	all := q.Flag("all", false)
	if q.Err != nil {
		return q.Err
	}
	gone, err := s.images.Prune(r.Context(), all)
	if err != nil {
		return fmt.Errorf("remove unused images: %w", err)
	}
	answer.WriteJSON(w, http.StatusOK, imageList(gone))
	return nil
}

func (s imageRoutes) usage(w http.ResponseWriter, r *http.Request) error {
	usage, err := s.images.Usage(r.Context())
	if err != nil {
		return fmt.Errorf("measure images: %w", err)
	}
	usage.TypeMeta = api.Type("ImageUsage")
	answer.WriteJSON(w, http.StatusOK, usage)
	return nil
}

func (s imageRoutes) pulls(w http.ResponseWriter, _ *http.Request) error {
	answer.WriteJSON(w, http.StatusOK,
		api.PullList{TypeMeta: api.Type("PullList"), Items: append([]api.Pull{}, s.images.Pulls()...)})
	return nil
}

func (s imageRoutes) save(w http.ResponseWriter, r *http.Request) error {
	q := query.Of(r)
	imageName(q)
	if q.Err != nil {
		return q.Err
	}
	out := answer.NewArchive(w)
	err := s.images.Save(r.Context(), q.Values["name"], out)
	return out.End(err)
}

// pullPeriod is the time between two progress lines of a pull.
const pullPeriod = 500 * time.Millisecond

// pull answers lines of JSON, each an api.Pull. The last line is the result.
func (s imageRoutes) pull(w http.ResponseWriter, r *http.Request) error {
	q := query.Of(r)
	name := imageName(q)
	if q.Err != nil {
		return q.Err
	}
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return answer.BadRequest(fmt.Sprintf("parse image name %q: %v", name, err),
			"write [REGISTRY/]REPOSITORY[:TAG|@DIGEST]")
	}
	full := reference.TagNameOnly(named).String()
	last := make(chan api.Pull, 1)
	go func() {
		image, err := s.images.Pull(r.Context(), name)
		end := api.Pull{TypeMeta: api.Type("Pull"), Name: name, Image: &image}
		if err != nil {
			st := answer.StatusOf(err)
			end.Image, end.Error = nil, &st
		}
		last <- end
	}()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	enc := json.NewEncoder(w)
	ticker := time.NewTicker(pullPeriod)
	defer ticker.Stop()
	for {
		select {
		case end := <-last:
			_ = enc.Encode(end) // it fails only if the connection is broken, and then there is no reader
			return nil
		case <-ticker.C:
		}
		for _, p := range s.images.Pulls() {
			if p.Name == full {
				p.TypeMeta = api.Type("Pull")
				_ = enc.Encode(p)
				_ = http.NewResponseController(w).Flush()
				break
			}
		}
	}
}
