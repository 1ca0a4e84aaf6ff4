package token

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-run/berth/internal/base/clock"
	"github.com/berth-run/berth/internal/base/retry"
)

// Request describes a token.
type Request struct {
	Namespace, ServiceAccount string
	// ServiceAccountUID is optional. With it the API server refuses the request if another account has the name now.
	ServiceAccountUID types.UID `json:",omitempty"`
	// Audiences of the token. Empty stands for the API server itself.
	Audiences []string `json:",omitempty"`
	// Life is the validity to request. The API server requires at least 10 minutes. 0 stands for its default, an
	// hour.
	Life time.Duration `json:",omitempty"`
	// PodName and PodUID identify the pod that the token is bound to. The token is invalid when the pod is deleted.
	PodName string
	PodUID  types.UID
}

// Token is a token of a service account.
type Token struct {
	Value string
	// Expires is when the token expires, by the clock of the API server.
	Expires time.Time
	// Renew is when to renew it, by the node's wall clock or its monotonic clock (package clock).
	Renew time.Time
	// ends is Expires by the node's monotonic clock.
	ends time.Time
}

// Create requests a token, as ServiceAccounts(namespace).CreateToken does.
type Create func(ctx context.Context, namespace, account string,
	r *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error)

// FromAPI requests tokens from the API server.
func FromAPI(client kubernetes.Interface) Create {
	return func(ctx context.Context, namespace, account string,
		r *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
		return client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account, r, metav1.CreateOptions{})
	}
}

// Tokens holds the tokens of this node's pods. It is safe for concurrent use.
type Tokens struct {
	create Create
	log    *slog.Logger

	mu      sync.Mutex
	entries map[string]*entry
}

// entry is one token. lock is held while the token is requested. Other callers wait for it.
type entry struct {
	lock  chan struct{}
	pod   types.UID
	token Token
	// seeded means that the token was saved by an earlier agent. While the API server is away, such a token is used
	// even after it has expired, because there is no better one for the pod.
	seeded bool
	// failures counts the failed renewals since the last success. retry is the time of the next try.
	failures int
	retry    time.Time
}

// New makes Tokens without any token.
func New(create Create, log *slog.Logger) *Tokens {
	return &Tokens{create: create, log: log, entries: map[string]*entry{}}
}

// Token returns a valid token, and renews it if it is due. It fails only if there is no valid one.
func (t *Tokens) Token(ctx context.Context, r Request) (Token, error) {
	if r.ServiceAccount == "" {
		return Token{}, errors.New("the pod has no service account: only pods of the API server have one")
	}
	e := t.entry(r)
	select {
	case e.lock <- struct{}{}:
		defer func() { <-e.lock }()
	case <-ctx.Done():
		return Token{}, ctx.Err()
	}
	now := time.Now()
	if e.token.Value != "" && !clock.Passed(e.token.Renew, now) {
		return e.token, nil
	}
	good := e.token.Value != "" && (e.seeded || now.Before(e.token.ends))
	if good && now.Before(e.retry) {
		return e.token.until(e.retry), nil
	}
	requesting := ctx
	if good { // the current token can be used further
		var cancel context.CancelFunc
		requesting, cancel = context.WithTimeout(ctx, renewTimeout)
		defer cancel()
	}
	issued, err := t.request(requesting, r)
	if err == nil {
		e.token, e.seeded, e.failures = issued, false, 0
		return issued, nil
	}
	if !good || e.seeded && !now.Before(e.token.Expires) && answered(err) {
		return Token{}, fmt.Errorf("get a token of service account %s/%s: %w", r.Namespace, r.ServiceAccount, err)
	}
	e.failures++
	e.retry = retryAt(time.Now(), e.failures, rand.Float64())
	t.log.Warn("cannot renew a token, the current one is used until it expires", "token", r.key(), "expires",
		e.token.Expires, "err", err)
	return e.token.until(e.retry), nil
}

// answered reports whether err is a response of the API server.
func answered(err error) bool { return apierrors.ReasonForError(err) != metav1.StatusReasonUnknown }

// until returns the token with another time of renewal.
func (k Token) until(renew time.Time) Token {
	k.Renew = renew
	return k
}

func (t *Tokens) entry(r Request) *entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[r.key()]
	if e == nil {
		e = &entry{lock: make(chan struct{}, 1), pod: r.PodUID}
		t.entries[r.key()] = e
	}
	return e
}

// Refused requests are retried soon, because the authorizer learns of a pod on a node a moment after the node does.
const (
	refusedFirst = 100 * time.Millisecond
	refusedTries = 5
	// renewTimeout limits the renewal of a token that is still valid.
	renewTimeout = 2 * time.Second
)

func (t *Tokens) request(ctx context.Context, r Request) (Token, error) {
	request := &authenticationv1.TokenRequest{
		ObjectMeta: metav1.ObjectMeta{UID: r.ServiceAccountUID},
		Spec: authenticationv1.TokenRequestSpec{
			Audiences: r.Audiences,
			BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: r.PodName,
				UID: r.PodUID},
		},
	}
	if r.Life > 0 {
		request.Spec.ExpirationSeconds = new(int64(r.Life / time.Second))
	}
	return unlessRefused(ctx, func() (Token, error) {
		now := time.Now()
		got, err := t.create(ctx, r.Namespace, r.ServiceAccount, request)
		switch {
		case err != nil:
			return Token{}, err
		case got.Status.Token == "":
			return Token{}, errors.New("the API server sent an empty token")
		}
		return issue(got, now), nil
	})
}

// unlessRefused retries a call for about 1.5 s while the API server forbids it.
func unlessRefused[T any](ctx context.Context, call func() (T, error)) (T, error) {
	delays := retry.Doubling(refusedFirst, time.Second)
	for try := 0; ; try++ {
		got, err := call()
		if !apierrors.IsForbidden(err) || try+1 == refusedTries {
			return got, err
		}
		if err := retry.Sleep(ctx, delays.Step()); err != nil {
			return got, err
		}
	}
}

// issue makes a token from a response. Its renewal is computed with the node's clock, so that a difference between
// the clocks does no harm.
func issue(got *authenticationv1.TokenRequest, now time.Time) Token {
	token := Token{Value: got.Status.Token, Expires: got.Status.ExpirationTimestamp.Time}
	life := token.Expires.Sub(now)
	if s := got.Spec.ExpirationSeconds; s != nil {
		life = time.Duration(*s) * time.Second
	}
	token.Renew, token.ends = renewal(now, life, rand.Float64()), now.Add(life)
	return token
}

// Forget drops the tokens of a pod that has ended.
func (t *Tokens) Forget(pod types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, e := range t.entries {
		if e.pod == pod {
			delete(t.entries, key)
		}
	}
}

// Of returns the tokens of a pod by request, to be saved for a boot without an API server.
func (t *Tokens) Of(pod types.UID) map[string]Token {
	t.mu.Lock()
	mine := map[string]*entry{}
	for key, e := range t.entries {
		if e.pod == pod {
			mine[key] = e
		}
	}
	t.mu.Unlock()
	all := map[string]Token{}
	for key, e := range mine {
		e.lock <- struct{}{}
		if e.token.Value != "" {
			all[key] = e.token
		}
		<-e.lock
	}
	return all
}

// Seed adds the tokens that an earlier agent has saved for a pod, as returned by Of. It must be called before Token.
// The tokens are renewed with the first call of Token that reaches the API server.
func (t *Tokens) Seed(pod types.UID, tokens map[string]Token) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, token := range tokens {
		token.Renew = time.Time{}
		t.entries[key] = &entry{lock: make(chan struct{}, 1), pod: pod, token: token, seeded: true}
	}
}
