package image

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/event"
	"github.com/berth-run/berth/internal/pod"
	"github.com/berth-run/berth/internal/reason"
	"github.com/berth-run/berth/internal/worker"
)

type client interface {
	ImageStatus(context.Context, *runtimeapi.ImageStatusRequest, ...grpc.CallOption) (*runtimeapi.ImageStatusResponse, error)
	PullImage(context.Context, *runtimeapi.PullImageRequest, ...grpc.CallOption) (*runtimeapi.PullImageResponse, error)
}

type events interface {
	Event(ref corev1.ObjectReference, eventType, reason, format string, args ...any)
}

// Options are what Images needs from its surroundings. All but Parallel and Log are required.
type Options struct {
	Client client
	Events events
	// Parallel is how many pulls run at a time on this node: 1 is the kubelet's
	// serializeImagePulls, another number its maxParallelImagePulls, 0 no bound.
	Parallel int
	Now      func() time.Time
	Log      *slog.Logger
}

// Images knows the pulls under way. Its methods may be called from any goroutine.
type Images struct {
	client client
	events events
	now    func() time.Time
	log    *slog.Logger
	slots  chan struct{} // nil: no bound

	mu    sync.Mutex
	pulls map[string]*pull // by full name
	pods  map[types.UID]*podImages
}

// podImages is what is remembered of one pod.
type podImages struct {
	backoffs map[string]backoff // by image as the pod spells it
	ahead    map[string]*ahead  // by container
}

// ahead is a pull made before the container's start asked for it.
type ahead struct {
	spec string // the image as the pod spells it
	done chan struct{}

	// Set before done is closed. When no pull was needed, both are nil.
	image *runtimeapi.Image
	err   error
	at    time.Time
}

// New makes an Images that pulls nothing yet.
func New(o Options) *Images {
	s := &Images{
		client: o.Client, events: o.Events, now: o.Now, log: o.Log,
		pulls: map[string]*pull{}, pods: map[types.UID]*podImages{},
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if o.Parallel > 0 {
		s.slots = make(chan struct{}, o.Parallel)
	}
	return s
}

// Ensure returns the image of a container that is about to be created, after
// it was pulled if its policy asks for that. An error carries one of the
// reasons ErrImagePull, ImagePullBackOff, ErrImageNeverPull, InvalidImageName,
// ImageInspectError, RegistryUnavailable, SignatureValidationFailed; that of a
// backoff also when the next pull is due (worker.RetryAt). When ctx ends, its
// error is returned.
func (s *Images) Ensure(ctx context.Context, p *corev1.Pod, c pod.Container) (*runtimeapi.Image, error) {
	if a := s.takeAhead(p.UID, c); a != nil {
		select {
		case <-a.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if s.stands(p.UID, a) {
			return a.image, a.err
		}
	}
	n, image, todo, err := s.look(ctx, p, c)
	if err != nil {
		return nil, s.cannotLook(ctx, p, c, err)
	}
	ref := event.ContainerRef(p, c)
	switch todo {
	case fetch:
		return s.pullFor(ctx, p, c, n)
	case use:
		s.events.Event(ref, corev1.EventTypeNormal, reason.Pulled, "Container image %q already present on machine", c.Image)
		return image, nil
	case refuse:
		err := reason.New(reason.ErrImageNeverPull, "Container image %q is not present with pull policy of Never", c.Image)
		s.events.Event(ref, corev1.EventTypeWarning, reason.ErrImageNeverPull, "%s", err.Message())
		return nil, err
	default: // wait
		b := s.backoff(p.UID, c.Image)
		s.events.Event(ref, corev1.EventTypeNormal, reason.BackOff, "Back-off pulling image %q", c.Image)
		return nil, worker.RetryAt(b.until(), reason.New(reason.ImagePullBackOff, "Back-off pulling image %q: %s", c.Image, b.message))
	}
}

// look finds out what the image of a container needs.
func (s *Images) look(ctx context.Context, p *corev1.Pod, c pod.Container) (name, *runtimeapi.Image, action, error) {
	n, err := parse(c.Image)
	if err != nil {
		return name{}, nil, refuse, reason.New(reason.InvalidImageName, "Failed to apply default image tag %q: couldn't parse image name %q: %w", c.Image, c.Image, err)
	}
	policy := policyOf(c.ImagePullPolicy, n)
	var image *runtimeapi.Image
	if policy != corev1.PullAlways {
		if image, err = s.status(ctx, n.tagged); err != nil {
			return name{}, nil, refuse, reason.New(reason.ImageInspectError, "Failed to inspect image %q: %w", c.Image, err)
		}
	}
	return n, image, decide(policy, image != nil, s.backoff(p.UID, c.Image), s.now()), nil
}

func (s *Images) cannotLook(ctx context.Context, p *corev1.Pod, c pod.Container, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	s.events.Event(event.ContainerRef(p, c), corev1.EventTypeWarning, reason.InspectFailed, "%s", reason.Message(err))
	return err
}

// pullFor pulls for one container and tells its events.
func (s *Images) pullFor(ctx context.Context, p *corev1.Pod, c pod.Container, n name) (*runtimeapi.Image, error) {
	ref := event.ContainerRef(p, c)
	s.events.Event(ref, corev1.EventTypeNormal, reason.Pulling, "Pulling image %q", c.Image)
	begin := s.now()
	pulled, err := s.pull(ctx, n)
	switch {
	case err == nil:
		s.events.Event(ref, corev1.EventTypeNormal, reason.Pulled,
			"Successfully pulled image %q in %v (%v including waiting). Image size: %d bytes.", c.Image,
			pulled.took.Truncate(time.Millisecond), s.now().Sub(begin).Truncate(time.Millisecond), pulled.image.Size)
		return pulled.image, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	s.events.Event(ref, corev1.EventTypeWarning, reason.Failed, "Failed to pull image %q: %v", c.Image, err)
	failure := pullError(c.Image, err)
	s.mu.Lock()
	state := s.podState(p.UID)
	state.backoffs[c.Image] = state.backoffs[c.Image].after(pulled, failure.Error(), s.now())
	s.mu.Unlock()
	return nil, failure
}

// pullError gives a failed pull the reason that the runtime named at the start
// of its message (CRI's RegistryUnavailable and SignatureValidationFailed),
// else ErrImagePull.
func pullError(image string, err error) error {
	cause := err.Error()
	var grpcErr interface{ GRPCStatus() *status.Status }
	if errors.As(err, &grpcErr) {
		cause = grpcErr.GRPCStatus().Message()
	}
	for r, what := range map[string]string{
		reason.RegistryUnavailable:       "the registry is unavailable",
		reason.SignatureValidationFailed: "the signature validation failed",
	} {
		if more, ok := strings.CutPrefix(cause, r); ok {
			return &reason.Error{Reason: r, Err: fmt.Errorf("image pull failed for %s because %s%s", image, what, more)}
		}
	}
	return reason.Wrap(reason.ErrImagePull, err)
}

// Forget drops what is remembered of a pod.
func (s *Images) Forget(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pods, uid)
}

func (s *Images) backoff(uid types.UID, image string) backoff {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state := s.pods[uid]; state != nil {
		return state.backoffs[image]
	}
	return backoff{}
}

// podState makes room for what is remembered of a pod. The caller holds mu.
func (s *Images) podState(uid types.UID) *podImages {
	if s.pods[uid] == nil {
		s.pods[uid] = &podImages{backoffs: map[string]backoff{}, ahead: map[string]*ahead{}}
	}
	return s.pods[uid]
}

// takeAhead hands out the pull ahead of a container once.
func (s *Images) takeAhead(uid types.UID, c pod.Container) *ahead {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.pods[uid]
	if state == nil {
		return nil
	}
	a := state.ahead[c.Name]
	delete(state.ahead, c.Name)
	if a != nil && a.spec != c.Image {
		return nil
	}
	return a
}

// stands says whether the result of a pull ahead can be taken for a pull now.
func (s *Images) stands(uid types.UID, a *ahead) bool {
	switch {
	case a.image != nil:
		return s.now().Sub(a.at) < aheadLife
	case a.err != nil:
		return s.now().Before(s.backoff(uid, a.spec).until())
	}
	return false
}
