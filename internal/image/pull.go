package image

import (
	"context"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/timeline"
)

// pull is one PullImage call that everybody shares who wants the image while
// it runs. It ends early when nobody is left.
type pull struct {
	name    name
	waiters int // guarded by Images.mu
	cancel  context.CancelFunc

	done chan struct{} // closed when what follows is set
	// image is what was pulled; took is the time without the wait for a slot.
	image *runtimeapi.Image
	took  time.Duration
	err   error
}

// pull waits for the pull of an image, begun now or by somebody else. When ctx
// ends first and nobody else waits, the pull has ended too when it returns.
func (s *Images) pull(ctx context.Context, n name) (*pull, error) {
	p := s.join(ctx, n)
	defer s.leave(p)
	select {
	case <-p.done:
		return p, p.err
	case <-ctx.Done():
		return p, ctx.Err()
	}
}

func (s *Images) join(ctx context.Context, n name) *pull {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pulls[n.full]
	if p == nil {
		p = &pull{name: n, done: make(chan struct{})}
		// Its span belongs to whom it was begun for, its life to all.
		ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
		s.pulls[n.full] = p
		go s.run(ctx, p)
	}
	p.waiters++
	return p
}

func (s *Images) leave(p *pull) {
	s.mu.Lock()
	p.waiters--
	last := p.waiters == 0
	if last {
		s.drop(p)
	}
	s.mu.Unlock()
	if last {
		p.cancel()
		<-p.done
	}
}

// drop has the next pull of this image begin anew. The caller holds mu.
func (s *Images) drop(p *pull) {
	if s.pulls[p.name.full] == p {
		delete(s.pulls, p.name.full)
	}
}

func (s *Images) run(ctx context.Context, p *pull) {
	defer close(p.done)
	ctx, span := timeline.Start(ctx, p.name.tagged, timeline.KindImage.Attr())
	p.image, p.err = s.fetch(ctx, p)
	timeline.End(span, p.err)
	s.log.Info("pull image", "image", p.name.tagged, "took", p.took, "size", p.image.GetSize(), "err", p.err)
	s.mu.Lock()
	s.drop(p)
	s.mu.Unlock()
}

func (s *Images) fetch(ctx context.Context, p *pull) (*runtimeapi.Image, error) {
	if s.slots != nil {
		waited := timeline.Wait(ctx, "other image pulls")
		select {
		case s.slots <- struct{}{}:
			waited()
			defer func() { <-s.slots }()
		case <-ctx.Done():
			waited()
			return nil, ctx.Err()
		}
	}
	begin := s.now()
	resp, err := s.client.PullImage(ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: p.name.tagged}})
	if err != nil {
		return nil, err
	}
	p.took = s.now().Sub(begin)
	image, err := s.status(ctx, resp.ImageRef)
	if err == nil && image == nil {
		err = fmt.Errorf("runtime pulled %s and does not know it", resp.ImageRef)
	}
	return image, err
}

// status asks the runtime for an image; nil when it is not there.
func (s *Images) status(ctx context.Context, ref string) (*runtimeapi.Image, error) {
	resp, err := s.client.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
	if err != nil {
		return nil, err
	}
	return resp.Image, nil
}
