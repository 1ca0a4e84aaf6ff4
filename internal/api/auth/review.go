package auth

import (
	"context"
	"errors"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
)

// The review calls are written here instead of using k8s.io/apiserver/plugin/pkg, because its webhooks link
// a CEL compiler and the egress proxies of API servers.

// reviewTimeout limits one review, retries included.
const reviewTimeout = 30 * time.Second

// maxPending limits how many reviews of one kind wait for an answer. Whoever reaches the node's server can cause
// reviews, with random tokens for example, and each one that waits uses memory.
const maxPending = 100

// errBusy is the error of a review while maxPending others wait.
var errBusy = errors.New("too many requests wait for the API server to check them")

// places has an element for each review of one kind that waits.
type places chan struct{}

func newPlaces() places { return make(places, maxPending) }

// ask calls review until it succeeds, fails with an error that a retry cannot help, or reviewTimeout is
// over. It fails with errBusy if there is no place.
func (p places) ask(ctx context.Context, review func(context.Context) error) error {
	select {
	case p <- struct{}{}:
		defer func() { <-p }()
	default:
		return errBusy
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	backoff := wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 5}
	var last error
	err := wait.ExponentialBackoffWithContext(ctx, backoff, func(ctx context.Context) (bool, error) {
		last = review(ctx)
		if last != nil && !retryable(last) {
			return false, last
		}
		return last == nil, nil
	})
	if last != nil {
		return last
	}
	return err
}

// retryable reports whether a retry of the same review may succeed soon.
func retryable(err error) bool {
	_, later := apierrors.SuggestsClientDelay(err)
	return later || utilnet.IsConnectionReset(err) || utilnet.IsHTTP2ConnectionLost(err) ||
		apierrors.IsInternalError(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err)
}

// reviewer is a client of one kind of review.
type reviewer[T any] interface {
	Create(context.Context, T, metav1.CreateOptions) (T, error)
}

// tokenReviews asks the API server which user a bearer token belongs to.
type tokenReviews struct {
	client reviewer[*authenticationv1.TokenReview]
	places places
}

func newTokenReviews(c reviewer[*authenticationv1.TokenReview]) tokenReviews {
	return tokenReviews{c, newPlaces()}
}

// AuthenticateToken implements authenticator.Token.
func (t tokenReviews) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	var answer *authenticationv1.TokenReview
	err := t.places.ask(ctx, func(ctx context.Context) (err error) {
		answer, err = t.client.Create(ctx,
			&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return nil, false, fmt.Errorf("review bearer token: %w", err)
	}
	st := answer.Status
	if !st.Authenticated {
		if st.Error != "" {
			err = errors.New(st.Error)
		}
		return nil, false, err
	}
	who := &user.DefaultInfo{Name: st.User.Username, UID: st.User.UID, Groups: st.User.Groups,
		Extra: map[string][]string{}}
	for name, values := range st.User.Extra {
		who.Extra[name] = values
	}
	return &authenticator.Response{User: who}, true, nil
}

// rights decides whether a user may do an action.
type rights interface {
	allowed(ctx context.Context, who user.Info, want attributes) (bool, error)
}

// maxAnswers is how many answers about rights are cached.
const maxAnswers = 1024

// accessReviews asks the API server whether a user may do an action, and caches its answers.
type accessReviews struct {
	client                reviewer[*authorizationv1.SubjectAccessReview]
	places                places
	answers               *utilcache.LRUExpireCache
	allowedTTL, deniedTTL time.Duration
}

func newAccessReviews(c reviewer[*authorizationv1.SubjectAccessReview],
	allowedTTL, deniedTTL time.Duration) *accessReviews {
	return &accessReviews{
		client: c, places: newPlaces(), answers: utilcache.NewLRUExpireCache(maxAnswers),
		allowedTTL: allowedTTL, deniedTTL: deniedTTL,
	}
}

func (a *accessReviews) allowed(ctx context.Context, who user.Info, want attributes) (bool, error) {
	spec, key, err := reviewFor(who, want)
	if err != nil {
		return false, fmt.Errorf("ask about rights: %w", err)
	}
	if cached, ok := a.answers.Get(key); ok {
		return cached.(bool), nil
	}
	var answer *authorizationv1.SubjectAccessReview
	err = a.places.ask(ctx, func(ctx context.Context) (err error) {
		answer, err = a.client.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return false, fmt.Errorf("ask about rights: %w", err)
	}
	// An answer with an evaluation error is valid all the same.
	yes := answer.Status.Allowed && !answer.Status.Denied
	ttl := a.deniedTTL
	if yes {
		ttl = a.allowedTTL
	}
	if key != "" && ttl > 0 {
		a.answers.Add(key, yes, ttl)
	}
	return yes, nil
}
