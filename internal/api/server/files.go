package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/answer"
	"github.com/berth-run/berth/internal/api/query"
	"github.com/berth-run/berth/internal/model/pod"
)

// Files reads and writes files of a running container, with the paths that its processes see. Streams have
// the format of package archive.
type Files interface {
	Pack(ctx context.Context, p *corev1.Pod, container, path string, w io.Writer) error
	// Unpack writes a stream to the target's path. If the path is a directory, the files go into it under
	// the target's name. It returns the files that were left out, with the reason.
	Unpack(ctx context.Context, p *corev1.Pod, f FileTarget, r io.Reader) (skipped []string, err error)
}

// FileTarget is a place in a container.
type FileTarget struct{ Container, Path, Name string }

// fileRoutes copies files out of and into containers.
type fileRoutes struct {
	podTable
	files Files
}

func (s fileRoutes) pack(w http.ResponseWriter, r *http.Request) error {
	q := query.Of(r)
	path := q.Get("path")
	if path == "" {
		return answer.BadRequest("no path to read", "give the path parameter")
	}
	p, c, err := s.running(r, q.Get("container"))
	if err != nil {
		return err
	}
	out := answer.NewArchive(w)
	err = s.files.Pack(r.Context(), p, c.Name, path, out)
	if err != nil {
		err = fmt.Errorf("read %s in container %q of pod %s: %w", path, c.Name, pod.FullName(p), err)
	}
	return out.End(err)
}

func (s fileRoutes) unpack(w http.ResponseWriter, r *http.Request) error {
	q := query.Of(r)
	f := FileTarget{Path: q.Get("path"), Name: q.Get("name")}
	if f.Path == "" || f.Name == "" {
		return answer.BadRequest("no place to write to", "give the path and name parameters")
	}
	p, c, err := s.running(r, q.Get("container"))
	if err != nil {
		return err
	}
	f.Container = c.Name
	skipped, err := s.files.Unpack(r.Context(), p, f, r.Body)
	if err != nil {
		// The client reads the answer only after it has sent everything, so read the rest of its stream.
		_, drainErr := io.Copy(io.Discard, r.Body)
		return errors.Join(fmt.Errorf("write %s in container %q of pod %s: %w", f.Path, c.Name, pod.FullName(p), err),
			drainErr)
	}
	answer.WriteJSON(w, http.StatusOK, api.Copied{TypeMeta: api.Type("Copied"), Skipped: skipped})
	return nil
}
