package token

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// api is an API server that issues tokens t1, t2, ... While err is set it returns err, until a time or without end.
type api struct {
	requests []authenticationv1.TokenRequestSpec
	err      error
	until    time.Time
}

func (a *api) create(_ context.Context, _, _ string, r *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest,
	error) {
	a.requests = append(a.requests, r.Spec)
	if a.err != nil && (a.until.IsZero() || time.Now().Before(a.until)) {
		return nil, a.err
	}
	got := r.DeepCopy()
	if got.Spec.ExpirationSeconds == nil {
		got.Spec.ExpirationSeconds = new(int64(3600))
	}
	got.Status.Token = fmt.Sprint("t", len(a.requests))
	got.Status.ExpirationTimestamp = metav1.NewTime(
		time.Now().Add(time.Duration(*got.Spec.ExpirationSeconds) * time.Second))
	return got, nil
}

func request() Request {
	return Request{Namespace: "app", ServiceAccount: "default", Audiences: []string{"vault"}, Life: time.Hour,
		PodName: "web", PodUID: "u"}
}

var errAway = errors.New("connection refused")

func want(t *testing.T, tokens *Tokens, r Request, value string) Token {
	t.Helper()
	got, err := tokens.Token(t.Context(), r)
	if err != nil || got.Value != value {
		t.Fatalf("at %v: token %q, %v, want %q", time.Now().Format(time.TimeOnly), got.Value, err, value)
	}
	return got
}

func TestTokenIsRenewedAt80PercentOfItsLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &api{}
		tokens := New(server.create, slog.New(slog.DiscardHandler))
		first := want(t, tokens, request(), "t1")
		if left := time.Until(first.Renew); left > 48*time.Minute || left < 48*time.Minute-maxJitter {
			t.Errorf("renewed in %v, want 48 minutes or up to 10 s less", left)
		}
		time.Sleep(time.Until(first.Renew) - time.Second)
		want(t, tokens, request(), "t1")
		time.Sleep(time.Second)
		want(t, tokens, request(), "t2")
		spec := authenticationv1.TokenRequestSpec{Audiences: []string{"vault"}, ExpirationSeconds: new(int64(3600)),
			BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: "web",
				UID: "u"}}
		if d := cmp.Diff([]authenticationv1.TokenRequestSpec{spec, spec}, server.requests); d != "" {
			t.Errorf("requests (-want +got):\n%s", d)
		}
	})
}

func TestTokensOfDifferentRequestsDiffer(t *testing.T) {
	server := &api{}
	tokens := New(server.create, slog.New(slog.DiscardHandler))
	other, pod := request(), request()
	other.Audiences, pod.PodUID = nil, "v"
	want(t, tokens, request(), "t1")
	want(t, tokens, other, "t2")
	want(t, tokens, pod, "t3")
	tokens.Forget("u")
	want(t, tokens, pod, "t3")
	want(t, tokens, request(), "t4")
}

func TestTokenStaysWhileTheAPIServerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &api{err: errAway}
		tokens := New(server.create, slog.New(slog.DiscardHandler))
		if _, err := tokens.Token(t.Context(), request()); !errors.Is(err, errAway) {
			t.Fatalf("the first token: %v", err)
		}
		server.err = nil
		first := want(t, tokens, request(), "t2")
		server.err = errAway
		time.Sleep(time.Until(first.Renew))
		later := want(t, tokens, request(), "t2")
		if left := time.Until(later.Renew); left < renewFirst || left > 2*renewFirst {
			t.Errorf("retried in %v", left)
		}
		for time.Now().Before(first.Expires) {
			time.Sleep(time.Until(want(t, tokens, request(), "t2").Renew))
		}
		if tries := len(server.requests); tries < 6 || tries > 12 {
			t.Errorf("%d requests in the remaining 12 minutes", tries)
		}
		if _, err := tokens.Token(t.Context(), request()); !errors.Is(err, errAway) {
			t.Errorf("after its end: %v", err)
		}
		server.err = nil
		if got, err := tokens.Token(t.Context(), request()); err != nil || got.Value == "t2" {
			t.Errorf("the API server is back: %q, %v", got.Value, err)
		}
	})
}

func TestARefusedRequestIsRetriedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &api{err: apierrors.NewForbidden(schema.GroupResource{Resource: "serviceaccounts"}, "default",
			errors.New("no relationship found"))}
		tokens := New(server.create, slog.New(slog.DiscardHandler))
		begin := time.Now()
		server.until = begin.Add(250 * time.Millisecond)
		want(t, tokens, request(), "t3")
		if took := time.Since(begin); took > time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

func TestASeededTokenIsUsedWhileTheAPIServerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &api{}
		before := New(server.create, slog.New(slog.DiscardHandler))
		want(t, before, request(), "t1")
		kept := before.Of("u")
		time.Sleep(2 * time.Hour)

		server.err = errAway
		after := New(server.create, slog.New(slog.DiscardHandler))
		after.Seed("u", kept)
		seeded := want(t, after, request(), "t1")
		server.err = nil
		time.Sleep(time.Until(seeded.Renew))
		want(t, after, request(), "t3")

		server.err = apierrors.NewNotFound(schema.GroupResource{Resource: "serviceaccounts"}, "default")
		after = New(server.create, slog.New(slog.DiscardHandler))
		after.Seed("u", kept)
		if _, err := after.Token(t.Context(), request()); !apierrors.IsNotFound(err) {
			t.Errorf("an ended token, and the API server knows no such account: %v", err)
		}
	})
}
