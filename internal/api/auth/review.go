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

// The review calls are made here and not by k8s.io/apiserver/plugin/pkg: its
// webhooks link a CEL compiler and the egress proxies of API servers.

// reviewTimeout bounds one question with its repetitions.
const reviewTimeout = 30 * time.Second

// ask calls review until it succeeds, fails for good, or reviewTimeout is over.
func ask(ctx context.Context, review func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	backoff := wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 5}
	var last error
	err := wait.ExponentialBackoffWithContext(ctx, backoff, func(ctx context.Context) (bool, error) {
		last = review(ctx)
		if last != nil && !passing(last) {
			return false, last
		}
		return last == nil, nil
	})
	if last != nil {
		return last
	}
	return err
}

// passing says whether the same question may be answered in a moment.
func passing(err error) bool {
	_, later := apierrors.SuggestsClientDelay(err)
	return later || utilnet.IsConnectionReset(err) || utilnet.IsHTTP2ConnectionLost(err) ||
		apierrors.IsInternalError(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err)
}

// reviewer is a client of one kind of review.
type reviewer[T any] interface {
	Create(context.Context, T, metav1.CreateOptions) (T, error)
}

// tokenReviews asks the API server whose a token is.
type tokenReviews struct {
	client reviewer[*authenticationv1.TokenReview]
}

// AuthenticateToken implements authenticator.Token.
func (t tokenReviews) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	var answer *authenticationv1.TokenReview
	err := ask(ctx, func(ctx context.Context) (err error) {
		answer, err = t.client.Create(ctx,
			&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return nil, false, fmt.Errorf("ask about a bearer token: %w", err)
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

// rights says who may do what.
type rights interface {
	allowed(ctx context.Context, who user.Info, want attributes) (bool, error)
}

// maxAnswers is how many answers about rights are kept.
const maxAnswers = 1024

// accessReviews asks the API server what a user may.
type accessReviews struct {
	client                reviewer[*authorizationv1.SubjectAccessReview]
	answers               *utilcache.LRUExpireCache
	allowedTTL, deniedTTL time.Duration
}

func newAccessReviews(c reviewer[*authorizationv1.SubjectAccessReview],
	allowedTTL, deniedTTL time.Duration) *accessReviews {
	return &accessReviews{client: c, answers: utilcache.NewLRUExpireCache(maxAnswers), allowedTTL: allowedTTL,
		deniedTTL: deniedTTL}
}

func (a *accessReviews) allowed(ctx context.Context, who user.Info, want attributes) (bool, error) {
	spec, key, err := question(who, want)
	if err != nil {
		return false, fmt.Errorf("ask about rights: %w", err)
	}
	if known, ok := a.answers.Get(key); ok {
		return known.(bool), nil
	}
	var answer *authorizationv1.SubjectAccessReview
	err = ask(ctx, func(ctx context.Context) (err error) {
		answer, err = a.client.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return false, fmt.Errorf("ask about rights: %w", err)
	}
	// An answer that comes with an error of evaluation still is one.
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
