package image

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/guard"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/worker"
)

// Step pulls the images of a pod's containers, all at once and before their starts. No other step waits for it: each
// container waits for its own image.
func (s *Images) Step() worker.Step {
	return worker.Step{Name: "image", Phase: worker.Prepare, Setup: s.setup, Teardown: s.teardown, Patience: patience}
}

// patience is how long the pulls of a pod may take: they wait for the pulls of other pods, and a large image over a
// slow link takes hours.
const patience = 6 * time.Hour

// setup succeeds even if a pull fails: the container's start reports that, with its reason, and tries again.
func (s *Images) setup(ctx context.Context, r *worker.Run) error {
	var pulls guard.Group
	defer pulls.Wait()
	for _, c := range pod.Containers(r.Pod.Pod) {
		if seen, ok := r.Observed.Container(c.Name); ok && same(seen.Image, c.Image) {
			continue // it has started before: a restart calls Ensure itself
		}
		if a := s.beginAhead(r.Pod.UID, c); a != nil {
			pulls.Go(func() { s.pullAhead(ctx, r.Pod.Pod, c, a) })
		}
	}
	return ctx.Err()
}

// Prefetch pulls the images of a pod that may not start yet. The pod's step later uses the results, or joins the
// running pulls. It returns when all pulls have ended.
func (s *Images) Prefetch(ctx context.Context, p *pod.Pod) {
	// It fails only if the pod is no longer wanted, so the error needs no report.
	_ = s.setup(ctx, &worker.Run{Pod: p})
}

// beginAhead registers a pull ahead. It returns nil if there is already one of the same image that has not failed.
func (s *Images) beginAhead(uid types.UID, c pod.Container) *ahead {
	s.mu.Lock()
	defer s.mu.Unlock()
	places := s.podState(uid).ahead
	if a := places[c.Name]; a != nil && a.spec == c.Image && !a.failed() {
		return nil
	}
	a := &ahead{spec: c.Image, done: make(chan struct{})}
	places[c.Name] = a
	return a
}

func (a *ahead) failed() bool {
	select {
	case <-a.done:
		return a.err != nil
	default:
		return false
	}
}

// pullAhead only pulls. Ensure reports everything else about the image, when the container starts.
func (s *Images) pullAhead(ctx context.Context, p *corev1.Pod, c pod.Container, a *ahead) {
	defer close(a.done)
	w := containerWant(p, c)
	f, err := s.inspect(ctx, w)
	if err != nil || f.todo != fetch {
		return
	}
	s.pool.metrics.requested(policyOf(w.policy, f.name), f)
	a.image, a.err = s.pullFor(ctx, w, f.name)
	a.at = s.now()
}

func (s *Images) teardown(_ context.Context, r *worker.Run) error {
	s.Forget(r.Pod.UID)
	return nil
}
