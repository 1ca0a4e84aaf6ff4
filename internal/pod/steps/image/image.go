package image

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/steps/image/credential"
	"github.com/berth-run/berth/internal/pod/worker"
	"github.com/berth-run/berth/internal/record/event"
)

type client interface {
	ImageStatus(context.Context, *runtimeapi.ImageStatusRequest, ...grpc.CallOption) (*runtimeapi.ImageStatusResponse,
		error)
	PullImage(context.Context, *runtimeapi.PullImageRequest, ...grpc.CallOption) (*runtimeapi.PullImageResponse, error)
}

// secrets reads the Secrets that pods name as imagePullSecrets.
type secrets interface {
	Secret(namespace, name string) (*corev1.Secret, error)
}

// sandboxes knows the sandboxes that pulls are for.
type sandboxes interface {
	// PullConfig returns the configuration that the runtime sees with a pull for a pod.
	PullConfig(*corev1.Pod) (*runtimeapi.PodSandboxConfig, error)
}

// keys finds the credentials for a repository.
type keys interface {
	Find(ctx context.Context, p *corev1.Pod, repository string, secrets []*corev1.Secret) ([]credential.Credential,
		error)
	// SecretsFor returns the pod's own credentials for the repository.
	SecretsFor(ctx context.Context, p *corev1.Pod, repository string, secrets []*corev1.Secret) ([]credential.Secret,
		error)
}

// records remembers which credentials each image was pulled with.
type records interface {
	Begin(image string) error
	End(image, repository, id string, s *credential.Secret) error
	Fail(image string) error
	Allowed(image, repository, id string, have func() []credential.Secret) bool
}

// garbage removes unused images.
type garbage interface {
	// Look checks the disk usage soon. It is called after each pull that brought an image, and must not block.
	Look()
}

// Options holds the dependencies and settings of Images. Client, Events and Now are required.
type Options struct {
	Client client
	Events event.Sink
	// Sandboxes makes the pod's part of a pull. nil means that the runtime sees only the image.
	Sandboxes sandboxes
	// Secrets and Keys find credentials. nil means that there are none.
	Secrets secrets
	Keys    keys
	// Records decides which pods may use an image that is present. nil allows every pod.
	Records records
	// Progress reads how far a pull is. nil means that the runtime does not report it.
	Progress progress
	// Garbage removes unused images. It may be nil.
	Garbage garbage
	// Parallel is how many pulls run at the same time on this node. 1 is the kubelet's serializeImagePulls, another
	// number its maxParallelImagePulls, and 0 means no limit.
	Parallel int
	Now      func() time.Time
	Log      *slog.Logger
}

// Images pulls the images of pods. Its methods may be called from any goroutine.
type Images struct {
	events    event.Sink
	sandboxes sandboxes // may be nil
	access    access
	pool      pool
	now       func() time.Time
	log       *slog.Logger

	mu   sync.Mutex
	pods map[types.UID]*podImages
}

// podImages is the memory of Images about one pod.
type podImages struct {
	backoffs map[string]backoff // by image in the pod's spelling
	ahead    map[string]*ahead  // by container
}

// ahead is a pull that was begun before the container's start needs it.
type ahead struct {
	spec string // the image in the pod's spelling
	done chan struct{}

	// These are set before done is closed. If no pull was needed, image and err are nil.
	image *runtimeapi.Image
	err   error
	at    time.Time
}

// New returns an Images that pulls nothing yet.
func New(o Options) *Images {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Images{
		events: o.Events, sandboxes: o.Sandboxes, now: o.Now, log: o.Log, pods: map[types.UID]*podImages{},
		access: access{events: o.Events, secrets: o.Secrets, keys: o.Keys, records: o.Records, log: o.Log},
		pool: pool{
			runtime: store{o.Client}, records: o.Records, progress: o.Progress, garbage: o.Garbage,
			metrics: newMetrics(), now: o.Now, log: o.Log, queue: queue{limit: o.Parallel}, pulls: map[string]*pull{},
		},
	}
}

// want is an image that a container or a volume of a pod needs.
type want struct {
	pod    *corev1.Pod
	ref    corev1.ObjectReference // the object of the events
	image  string                 // in the pod's spelling
	policy corev1.PullPolicy
	// what is the purpose of the image, the first word of the messages.
	what string
}

func containerWant(p *corev1.Pod, c pod.Container) want {
	return want{pod: p, ref: event.ContainerRef(p, c), image: c.Image, policy: c.ImagePullPolicy,
		what: "Container image"}
}

// Ensure returns the image of a container that is about to be created, and pulls it first if its policy requires that.
// An error carries one of the reasons ErrImagePull, ImagePullBackOff, ErrImageNeverPull, InvalidImageName,
// ImageInspectError, RegistryUnavailable, SignatureValidationFailed. A backoff error also says when the next pull is
// due (worker.RetryAt). If ctx ends, Ensure returns its error.
func (s *Images) Ensure(ctx context.Context, p *corev1.Pod, c pod.Container) (*runtimeapi.Image, error) {
	if a := s.takeAhead(p.UID, c); a != nil {
		select {
		case <-a.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if s.stillValid(p, a) {
			return a.image, a.err
		}
	}
	return s.ensure(ctx, containerWant(p, c))
}

// EnsureVolume does the same as Ensure for an image that is mounted as a volume (KEP-4639).
func (s *Images) EnsureVolume(ctx context.Context, p *corev1.Pod, v *corev1.ImageVolumeSource) (*runtimeapi.Image,
	error) {
	return s.ensure(ctx,
		want{pod: p, ref: event.PodRef(p), image: v.Reference, policy: v.PullPolicy, what: "Volume image"})
}

func (s *Images) ensure(ctx context.Context, w want) (*runtimeapi.Image, error) {
	f, err := s.inspect(ctx, w)
	if err != nil {
		return nil, s.access.reportInspectError(ctx, w, err)
	}
	s.pool.metrics.requested(policyOf(w.policy, f.name), f)
	switch f.todo {
	case fetch:
		return s.pullFor(ctx, w, f.name)
	case use:
		text := "Container image %q already present on machine"
		if s.access.records != nil {
			text += " and can be accessed by the pod"
		}
		s.events.Event(w.ref, corev1.EventTypeNormal, reason.Pulled, text, w.image)
		return f.image, nil
	case refuse:
		// The pod must not learn that the node has an image that the pod has no access to. Only the node's log says so.
		if f.image != nil {
			s.log.Info("image is present, but the pod has no credentials that are known to have access to it", "pod",
				pod.FullName(w.pod), "image", w.image)
		}
		err := reason.New(reason.ErrImageNeverPull, "%s %q is not present with pull policy of Never", w.what, w.image)
		s.events.Event(w.ref, corev1.EventTypeWarning, reason.ErrImageNeverPull, "%s", err.Message())
		return nil, err
	default: // wait
		b := s.backoff(w.pod, w.image)
		s.events.Event(w.ref, corev1.EventTypeNormal, reason.BackOff, "Back-off pulling image %q", w.image)
		return nil,
			worker.RetryAt(b.until(),
				untilSecretChanges(w.pod,
					reason.New(reason.ImagePullBackOff, "Back-off pulling image %q: %s", w.image, b.message)))
	}
}

// finding is the result of looking for an image, with the action that it needs.
type finding struct {
	name  name
	image *runtimeapi.Image // nil if none is present
	todo  action
}

// inspect looks for an image and returns the action that it needs.
func (s *Images) inspect(ctx context.Context, w want) (finding, error) {
	n, err := parse(w.image)
	if err != nil {
		return finding{},
			reason.New(reason.InvalidImageName,
				"Failed to apply default image tag %q: couldn't parse image name %q: %w", w.image, w.image, err)
	}
	policy := policyOf(w.policy, n)
	f := finding{name: n}
	if policy != corev1.PullAlways {
		if f.image, err = s.pool.runtime.status(ctx, n.tagged, w.pod.Annotations); err != nil {
			return finding{}, reason.New(reason.ImageInspectError, "Failed to inspect image %q: %w", w.image, err)
		}
	}
	f.todo = decide(policy, f.image != nil && s.access.allowed(ctx, w, f), s.backoff(w.pod, w.image), s.now())
	return f, nil
}

func (s *access) reportInspectError(ctx context.Context, w want, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	s.events.Event(w.ref, corev1.EventTypeWarning, reason.InspectFailed, "%s", reason.Message(err))
	return err
}

// pullFor pulls for a pod and records the pull's events.
func (s *Images) pullFor(ctx context.Context, w want, n name) (*runtimeapi.Image, error) {
	if err := s.access.unknownSecret(w.pod); err != nil {
		return nil, err
	}
	s.events.Event(w.ref, corev1.EventTypeNormal, reason.Pulling, "Pulling image %q", w.image)
	begin := s.now()
	have, missing := s.access.pullSecrets(w.pod)
	creds, trouble := s.access.credentials(ctx, w.pod, n, have, missing)
	o, err := s.orderFor(w.pod, n, creds)
	if err != nil {
		return nil, err
	}
	pulled, err := s.pool.pull(ctx, o, &waiter{
		pod: pod.FullName(w.pod), priority: priority(w.pod),
		report: func(news string) {
			s.events.Event(w.ref, corev1.EventTypeNormal, reason.Pulling, "Pulling image %q: %s", w.image, news)
		},
	})
	switch {
	case err == nil:
		s.events.Event(w.ref, corev1.EventTypeNormal, reason.Pulled,
			"Successfully pulled image %q in %v (%v including waiting). Image size: %d bytes.", w.image,
			pulled.took.Truncate(time.Millisecond), s.now().Sub(begin).Truncate(time.Millisecond), pulled.image.Size)
		return pulled.image, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case trouble != nil:
		err = fmt.Errorf("%w; not all credentials could be used: %w", err, trouble)
	}
	s.events.Event(w.ref, corev1.EventTypeWarning, reason.Failed, "Failed to pull image %q: %v", w.image, err)
	failure := pullError(w.image, err)
	s.mu.Lock()
	state := s.podState(w.pod.UID)
	state.backoffs[w.image] = state.backoffs[w.image].after(pulled, failure.Error(), have, s.now())
	s.mu.Unlock()
	return nil, untilSecretChanges(w.pod, failure)
}

// orderFor returns the pull of an image for a pod.
func (s *Images) orderFor(p *corev1.Pod, n name, creds []credential.Credential) (o order, err error) {
	o = order{name: n, creds: creds, annotations: p.Annotations}
	if s.sandboxes == nil {
		return o, nil
	}
	if o.sandbox, err = s.sandboxes.PullConfig(p); err != nil {
		return o, fmt.Errorf("pull image %q: %w", n.tagged, err)
	}
	return o, nil
}

// pullFailure is the error of a failed pull. The next attempt waits for a time, or for another version of one of the
// pod's Secrets (object.Waits).
type pullFailure struct {
	error
	secrets []error
}

func (e *pullFailure) Unwrap() []error { return append([]error{e.error}, e.secrets...) }

// untilSecretChanges returns failure as an error that also ends when one of the pod's pull Secrets changes.
func untilSecretChanges(p *corev1.Pod, failure error) error {
	e := &pullFailure{error: failure}
	for _, ref := range p.Spec.ImagePullSecrets {
		key := object.Key{Kind: object.Secret, Namespace: p.Namespace, Name: ref.Name}
		e.secrets = append(e.secrets, &object.Lacking{Key: key, Err: failure})
	}
	return e
}

// pullError gives a failed pull the reason that the runtime named at the start of its message (the CRI's
// RegistryUnavailable and SignatureValidationFailed), otherwise ErrImagePull.
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

// Forget drops everything about a pod, such as its backoffs.
func (s *Images) Forget(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pods, uid)
}

// backoff returns the backoff of an image. It returns none if the pod's Secrets differ from those that the pull failed
// with.
func (s *Images) backoff(p *corev1.Pod, image string) backoff {
	s.mu.Lock()
	b := backoff{}
	if state := s.pods[p.UID]; state != nil {
		b = state.backoffs[image]
	}
	s.mu.Unlock()
	if b.delay == 0 {
		return b
	}
	if have, _ := s.access.pullSecrets(p); !slices.EqualFunc(have, b.secrets, sameSecret) {
		return backoff{}
	}
	return b
}

// podState returns the memory about a pod, and makes it if necessary. The caller holds mu.
func (s *Images) podState(uid types.UID) *podImages {
	if s.pods[uid] == nil {
		s.pods[uid] = &podImages{backoffs: map[string]backoff{}, ahead: map[string]*ahead{}}
	}
	return s.pods[uid]
}

// takeAhead removes and returns the pull ahead of a container, so that only one start uses it.
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

// stillValid reports whether the result of a pull ahead can replace a pull now.
func (s *Images) stillValid(p *corev1.Pod, a *ahead) bool {
	switch {
	case a.image != nil:
		return s.now().Sub(a.at) < aheadLife
	case a.err != nil:
		return s.now().Before(s.backoff(p, a.spec).until())
	}
	return false
}
