package image

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/guard"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/steps/image/credential"
	"github.com/berth-run/berth/internal/record/timeline"
)

// order has the parameters of a pull.
type order struct {
	name  name
	creds []credential.Credential
	// annotations are the pod's. A runtime may choose a snapshotter by them. nil for a command.
	annotations map[string]string
	// sandbox is the configuration of the pod that the image is for. A runtime may choose the policy for signatures or
	// the cgroup of the pull by it. nil for a command.
	sandbox *runtimeapi.PodSandboxConfig
}

// pull is the pull of one image. All pods whose orders have the same key while it runs share it. It is cancelled when
// its last waiter has left.
type pull struct {
	order
	key string // in pool.pulls

	// Guarded by pool.mu.
	waiters  map[*waiter]struct{}
	priority int32 // the highest one of its waiters
	arrived  int   // its order of arrival among those that wait for a slot
	slot     bool  // it has a slot
	stalled  bool  // it lost its slot because it made no progress
	since    time.Time
	course   course

	cancel context.CancelFunc
	turn   chan struct{} // closed when it has a slot
	done   chan struct{} // closed after the results below are set
	// image is the result. took is the time without the wait for a slot.
	image *runtimeapi.Image
	took  time.Duration
	err   error
}

// waiter is a pod or a command that waits for a pull.
type waiter struct {
	// pod is the pod's full name, or "" for a command.
	pod      string
	priority int32
	// report receives the text of progress events. nil reports nothing.
	report func(message string)
}

// key returns the key of a pull. Orders with the same key share one pull. They agree in the image, the credentials, the
// namespace, and the annotations, without those that differ for every static pod.
func (o order) key() string {
	h := sha256.New()
	for _, c := range o.creds {
		fmt.Fprintf(h, "%q %q %q", c.Auth.Username, c.Auth.Password, c.Auth.IdentityToken)
		if c.Secret != nil {
			fmt.Fprintf(h, " %q %q", c.Secret.Namespace, c.Secret.Name)
		}
		fmt.Fprintln(h)
	}
	fmt.Fprintf(h, "%q\n", o.sandbox.GetMetadata().GetNamespace())
	for _, name := range slices.Sorted(maps.Keys(o.annotations)) {
		switch name {
		case pod.AnnotationConfigHash, pod.AnnotationConfigSeen, pod.AnnotationConfigSource:
		default:
			fmt.Fprintf(h, "%q %q\n", name, o.annotations[name])
		}
	}
	return o.name.full + " " + string(h.Sum(nil))
}

// pool has the running pulls of this node. Its methods may be called from any goroutine.
type pool struct {
	runtime  store
	records  records  // nil: not recorded
	progress progress // nil: the runtime does not report progress
	garbage  garbage  // may be nil
	metrics  metrics
	now      func() time.Time
	log      *slog.Logger

	mu    sync.Mutex
	queue queue
	pulls map[string]*pull // by order.key
}

// pull waits for the pull of an image, which it begins unless one is running. If ctx ends first and there is no other
// waiter, the pull has ended when the method returns.
func (s *pool) pull(ctx context.Context, o order, w *waiter) (*pull, error) {
	p := s.join(ctx, o, w)
	defer s.leave(p, w)
	select {
	case <-p.done:
		return p, p.err
	case <-ctx.Done():
		return p, ctx.Err()
	}
}

func (s *pool) join(ctx context.Context, o order, w *waiter) *pull {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := o.key()
	p := s.pulls[key]
	if p == nil {
		p = &pull{
			order: o, key: key, waiters: map[*waiter]struct{}{}, priority: w.priority, since: s.now(),
			turn: make(chan struct{}), done: make(chan struct{}),
		}
		// Its span belongs to the caller that began it, its lifetime to all waiters.
		ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
		s.pulls[key] = p
		s.queue.enter(p)
		guard.Go(func() { s.run(ctx, p) }, func(e *guard.Panic) {
			s.log.Error("panic after an image pull", "image", p.name.tagged, "panic", e.Value, "stack", e.Stack)
		})
	}
	p.waiters[w] = struct{}{}
	p.priority = max(p.priority, w.priority)
	return p
}

func (s *pool) leave(p *pull, w *waiter) {
	s.mu.Lock()
	delete(p.waiters, w)
	last := len(p.waiters) == 0
	if last {
		s.drop(p)
	}
	s.mu.Unlock()
	if last {
		p.cancel()
		<-p.done
	}
}

// drop removes a pull, so that the next request for its image begins a new one. The caller holds mu.
func (s *pool) drop(p *pull) {
	if s.pulls[p.key] == p {
		delete(s.pulls, p.key)
	}
}

func (s *pool) run(ctx context.Context, p *pull) {
	defer close(p.done)
	ctx, span := timeline.Start(ctx, p.name.tagged, timeline.KindImage.Attr())
	p.err = guard.Call(func() (err error) {
		p.image, err = s.fetch(ctx, p)
		return err
	})
	timeline.End(span, p.err)
	if p.err != nil {
		s.log.Warn("image pull failed", "image", p.name.tagged, "took", p.took, "err", p.err)
	} else {
		s.log.Info("image pulled", "image", p.name.tagged, "took", p.took, "size", p.image.GetSize())
		s.metrics.pulled(p.image.GetSize(), p.took)
	}
	s.mu.Lock()
	s.drop(p)
	s.queue.leave(p)
	s.mu.Unlock()
	if p.err == nil && s.garbage != nil {
		s.garbage.Look()
	}
}

func (s *pool) fetch(ctx context.Context, p *pull) (*runtimeapi.Image, error) {
	select {
	case <-p.turn:
	default:
		waited := timeline.Wait(ctx, "other image pulls")
		select {
		case <-p.turn:
			waited()
		case <-ctx.Done():
			waited()
			return nil, ctx.Err()
		}
	}
	if s.records != nil {
		if err := s.records.Begin(p.name.full); err != nil {
			return nil, err
		}
	}
	begin := s.now()
	image, used, err := s.watchedPull(ctx, p)
	p.took = s.now().Sub(begin)
	if s.records == nil {
		return image, err
	}
	if err != nil {
		if e := s.records.Fail(p.name.full); e != nil {
			s.log.Warn("cannot remove the record of a failed pull", "image", p.name.full, "err", e)
		}
		return nil, err
	}
	if e := s.records.End(p.name.full, p.name.repository, image.Id, used); e != nil {
		s.log.Warn("cannot record which credentials the image was pulled with, other pods will pull it again", "image",
			p.name.full, "err", e)
	}
	return image, nil
}

// watchedPull pulls the image, and watches the pull meanwhile.
func (s *pool) watchedPull(ctx context.Context, p *pull) (*runtimeapi.Image, *credential.Secret, error) {
	var watch guard.Group
	defer watch.Wait()
	watched, stop := context.WithCancel(ctx)
	defer stop()
	watch.Go(func() { s.watch(watched, p) })
	return s.runtime.pull(ctx, p)
}

// store is the runtime's image service.
type store struct{ client }

// pull tries one credential after the other until one has access. Without credentials it pulls anonymously. used is the
// Secret of the credential that had access.
func (s store) pull(ctx context.Context, p *pull) (image *runtimeapi.Image, used *credential.Secret, err error) {
	creds := p.creds
	if len(creds) == 0 {
		creds = []credential.Credential{{}}
	}
	var failures []error
	for _, c := range creds {
		if image, err = s.pullWith(ctx, p.order, c.Auth); err == nil {
			return image, c.Secret, nil
		}
		if !slices.ContainsFunc(failures, func(e error) bool { return e.Error() == err.Error() }) {
			failures = append(failures, err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	if len(failures) == 1 {
		return nil, nil, failures[0]
	}
	var texts []string
	for _, e := range failures[1:] {
		texts = append(texts, e.Error())
	}
	return nil, nil, fmt.Errorf("%w; with other credentials: %s", failures[0], strings.Join(texts, "; "))
}

func (s store) pullWith(ctx context.Context, o order, auth *runtimeapi.AuthConfig) (*runtimeapi.Image, error) {
	resp, err := s.PullImage(ctx, &runtimeapi.PullImageRequest{
		Image: &runtimeapi.ImageSpec{Image: o.name.tagged, Annotations: o.annotations},
		Auth:  auth, SandboxConfig: o.sandbox,
	})
	if err != nil {
		return nil, err
	}
	image, err := s.status(ctx, resp.ImageRef, o.annotations)
	if err == nil && image == nil {
		err = fmt.Errorf("the runtime pulled image %s but does not list it", resp.ImageRef)
	}
	return image, err
}

// status returns an image from the runtime, or nil if it is not present. annotations are the pod's.
func (s store) status(ctx context.Context, ref string, annotations map[string]string) (*runtimeapi.Image, error) {
	resp, err := s.ImageStatus(ctx,
		&runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: ref, Annotations: annotations}})
	if err != nil {
		return nil, err
	}
	return resp.Image, nil
}
