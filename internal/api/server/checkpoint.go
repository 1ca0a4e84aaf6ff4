package server

import (
	"context"
	"fmt"
	"io"
	"net/http"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/api/answer"
	"github.com/berth-run/berth/internal/api/query"
	"github.com/berth-run/berth/internal/model/pod"
)

// Checkpoints writes checkpoints of containers.
type Checkpoints interface {
	// Checkpoint writes the state of a running container as an archive of the runtime. The container runs on.
	Checkpoint(ctx context.Context, p *corev1.Pod, container string, w io.Writer) error
}

// checkpointRoutes makes checkpoints.
type checkpointRoutes struct {
	podTable
	checkpoints Checkpoints
}

func (s checkpointRoutes) write(w http.ResponseWriter, r *http.Request) error {
	q := query.Of(r)
	name := q.Get("container")
	if q.Err != nil {
		return q.Err
	}
	p, c, err := s.running(r, name)
	if err != nil {
		return err
	}
	out := answer.NewArchive(w)
	err = s.checkpoints.Checkpoint(r.Context(), p, c.Name, out)
	if err != nil {
		err = fmt.Errorf("checkpoint container %q of pod %s: %w", c.Name, pod.FullName(p), err)
	}
	return out.End(err)
}
