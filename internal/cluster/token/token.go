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
)

// Request says which token is wanted.
type Request struct {
	Namespace, ServiceAccount string
	// ServiceAccountUID, if set, has the API server refuse for another account of
	// that name.
	ServiceAccountUID types.UID `json:",omitempty"`
	// Audiences of the token; empty: the API server itself.
	Audiences []string `json:",omitempty"`
	// Life is how long the token is to be good, at least 10 minutes for the API
	// server; 0: what that gives, an hour.
	Life time.Duration `json:",omitempty"`
	// PodName and PodUID are the pod that the token is bound to: it ends with it.
	PodName string
	PodUID  types.UID
}

// Token is a token of a service account.
type Token struct {
	Value string
	// Expires is when it ends, by the clock of the API server.
	Expires time.Time
	// Renew is when to ask again, by either clock (package clock).
	Renew time.Time
	// ends is Expires by the clock here that nobody sets.
	ends time.Time
}

// Create asks for a token, as ServiceAccounts(namespace).CreateToken does.
type Create func(ctx context.Context, namespace, account string,
	r *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error)

// FromAPI asks the API server.
func FromAPI(client kubernetes.Interface) Create {
	return func(ctx context.Context, namespace, account string,
		r *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
		return client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account, r, metav1.CreateOptions{})
	}
}

// Tokens are the tokens of this node's pods. It is safe for concurrent use.
type Tokens struct {
	create Create
	log    *slog.Logger

	mu      sync.Mutex
	entries map[string]*entry
}

// entry is one token. Its lock is held while the token is asked for: who else
// wants it waits.
type entry struct {
	lock  chan struct{}
	pod   types.UID
	token Token
	// seeded tokens are an earlier agent's: without an API server they serve also
	// after their end, as a pod that was started before has none better.
	seeded bool
	// failures to renew it since, and when to try again.
	failures int
	retry    time.Time
}

// New makes Tokens that have none.
func New(create Create, log *slog.Logger) *Tokens {
	return &Tokens{create: create, log: log, entries: map[string]*entry{}}
}

// Token returns a token that is good, and asks for a new one if it is due. It
// fails only if there is none that has not ended.
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
	asking := ctx
	if good { // there is one to go on with
		var cancel context.CancelFunc
		asking, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	issued, err := t.ask(asking, r)
	if err == nil {
		e.token, e.seeded, e.failures = issued, false, 0
		return issued, nil
	}
	if !good || e.seeded && !now.Before(e.token.Expires) && answered(err) {
		return Token{}, fmt.Errorf("get a token of service account %s/%s: %w", r.Namespace, r.ServiceAccount, err)
	}
	e.failures++
	e.retry = again(time.Now(), e.failures, rand.Float64())
	t.log.Warn("renew a token, the one there is stays until it ends", "token", r.key(), "ends", e.token.Expires, "err",
		err)
	return e.token.until(e.retry), nil
}

// answered says that err is the API server's answer, and not that there was none.
func answered(err error) bool { return apierrors.ReasonForError(err) != metav1.StatusReasonUnknown }

// until is the token with another time to ask again.
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

// Refused requests are tried again soon: the authorizer learns of a pod's node a
// moment after the node does.
const (
	refusedFirst = 100 * time.Millisecond
	refusedTries = 5
	// patience is how long a request may take while there is a token to go on with.
	patience = 2 * time.Second
)

func (t *Tokens) ask(ctx context.Context, r Request) (Token, error) {
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
			return Token{}, errors.New("the API server sent none")
		}
		return issue(got, now), nil
	})
}

// unlessRefused calls again for a while as long as the API server forbids it.
func unlessRefused[T any](ctx context.Context, call func() (T, error)) (T, error) {
	for try := 0; ; try++ {
		got, err := call()
		if !apierrors.IsForbidden(err) || try+1 == refusedTries {
			return got, err
		}
		select {
		case <-ctx.Done():
			return got, ctx.Err()
		case <-time.After(refusedFirst << try): // 1.5 s in all
		}
	}
}

// issue makes a token of an answer. When it is due is counted from now, the node's
// clock: one that differs from the API server's does no harm.
func issue(got *authenticationv1.TokenRequest, now time.Time) Token {
	token := Token{Value: got.Status.Token, Expires: got.Status.ExpirationTimestamp.Time}
	life := token.Expires.Sub(now)
	if s := got.Spec.ExpirationSeconds; s != nil {
		life = time.Duration(*s) * time.Second
	}
	token.Renew, token.ends = renewal(now, life, rand.Float64()), now.Add(life)
	return token
}

// Forget drops the tokens of a pod that is gone.
func (t *Tokens) Forget(pod types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, e := range t.entries {
		if e.pod == pod {
			delete(t.entries, key)
		}
	}
}

// Of are the tokens of a pod, by what was asked for, to be kept for a boot
// without an API server.
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

// Seed takes the tokens of a pod that an earlier agent had, as Of gave them. It is
// called before anybody asks. They are renewed when they are asked for, or when
// the API server is back.
func (t *Tokens) Seed(pod types.UID, tokens map[string]Token) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, token := range tokens {
		token.Renew = time.Time{}
		t.entries[key] = &entry{lock: make(chan struct{}, 1), pod: pod, token: token, seeded: true}
	}
}
