package kubeapi

import (
	"context"
	"encoding/pem"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/berth-run/berth/internal/config"
)

func TestJudge(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	first, second := errors.New("first"), errors.New("second")
	answers, away := State{Since: at(1)}, State{Since: at(1), Err: first, First: at(0), Last: at(1)}
	for _, tt := range []struct {
		name     string
		state    State
		answered int
		o        outcome
		want     State
	}{
		{"the first answer", State{}, 0, outcome{at(1), at(2), nil}, State{Since: at(2)}},
		{"the first failure", State{}, 0, outcome{at(1), at(2), first},
			State{Since: at(2), Err: first, First: at(1), Last: at(2)}},
		{"another answer", answers, 1, outcome{at(2), at(3), nil}, answers},
		{"away", answers, 2, outcome{at(3), at(4), first}, State{Since: at(4), Err: first, First: at(3), Last: at(4)}},
		{"began before the last response", answers, 5, outcome{at(3), at(6), first}, answers},
		{"still away", away, 0, outcome{at(3), at(4), second},
			State{Since: at(1), Err: second, First: at(0), Last: at(4)}},
		{"back", away, 0, outcome{at(3), at(4), nil}, State{Since: at(4)}},
	} {
		if diff := cmp.Diff(tt.want, judge(tt.state, at(tt.answered), tt.o), cmpopts.EquateErrors()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// clusterConfig is the default configuration for a cluster.
func clusterConfig() *config.Cluster {
	return &config.Cluster{
		ContentType: "application/vnd.kubernetes.protobuf", Main: config.Rate{QPS: 50, Burst: 100},
		Statuses: config.Rate{QPS: 200, Burst: 400},
		Status:   config.NodeStatus{UpdateFrequency: 10 * time.Second, LeaseDuration: 40 * time.Second},
	}
}

// The requests of every client update Health, and a refusal counts as a response.
func TestHealthFollowsTheRequestsOfAllClients(t *testing.T) {
	code := make(chan int, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.UserAgent(); got != "berth/v1" {
			t.Errorf("user agent %q", got)
		}
		w.WriteHeader(<-code)
	}))
	defer server.Close()
	a, err := Connect(Options{Base: &rest.Config{Host: server.URL}, Cluster: clusterConfig(), Version: "v1",
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	watch := a.Health.Watch()
	defer watch.Stop()
	get := func(ctx context.Context) { _, _ = a.Heartbeat.CoreV1().Nodes().Get(ctx, "n", metav1.GetOptions{}) }

	code <- http.StatusForbidden
	get(t.Context())
	if s := a.Health.State(); s.Since.IsZero() || s.Away() {
		t.Errorf("refused: %+v", s)
	}
	code <- http.StatusBadGateway
	get(t.Context())
	if s := a.Health.State(); !s.Away() {
		t.Errorf("by a gateway: %+v", s)
	}
	since := a.Health.State()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	get(ctx)
	if diff := cmp.Diff(since, a.Health.State(), cmpopts.EquateErrors()); diff != "" {
		t.Errorf("a cancelled request changed the state:\n%s", diff)
	}
	code <- http.StatusOK
	get(t.Context())
	if s := a.Health.State(); s.Away() || a.Health.LastAnswer().IsZero() {
		t.Errorf("back: %+v", s)
	}
	<-watch.C()
	if changes := watch.Changes(); len(changes) != 1 || changes[0].Value.Away() {
		t.Errorf("watch: %+v", changes)
	}
	server.CloseClientConnections()
	server.Close()
	get(t.Context())
	if s := a.Health.State(); !s.Away() {
		t.Errorf("server gone: %+v", s)
	}
}

// A server may hang after it has sent the header of a response.
func TestABodyThatMissesTheDeadlineIsAFailure(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer server.Close()
	a, err := Connect(Options{Base: &rest.Config{Host: server.URL}, Cluster: clusterConfig(), Version: "v1",
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = a.Heartbeat.CoreV1().Nodes().Get(ctx, "n", metav1.GetOptions{})
	header := a.Health.LastAnswer()
	if s := a.Health.State(); err == nil || !s.Away() || header.IsZero() || s.First.Before(header) {
		t.Errorf("%v: %+v, header at %v", err, s, header)
	}
}

// Reviews that use up their budget delay no other request.
func TestReviewsDelayNoOtherRequest(t *testing.T) {
	a, err := Connect(Options{Base: &rest.Config{Host: "http://127.0.0.1:1"}, Cluster: clusterConfig(), Version: "v1",
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	mayAsk := func(c kubernetes.Interface) bool {
		return c.AuthenticationV1().RESTClient().GetRateLimiter().TryAccept()
	}
	for mayAsk(a.TokenReviews) {
	}
	for name, client := range map[string]kubernetes.Interface{
		"Main": a.Main, "Statuses": a.Statuses, "AccessReviews": a.AccessReviews,
	} {
		if !mayAsk(client) {
			t.Errorf("%s has no budget left", name)
		}
	}
}

// A request after the replacement does not meet a connection that was just closed. Those under way then do not make
// Health say that the server is away.
func TestTheRequestAfterAReplacementSucceeds(t *testing.T) {
	base := http2Server(t, func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			t.Errorf("request with %s", r.Proto)
		}
		w.WriteHeader(http.StatusForbidden)
	})
	a, err := Connect(Options{Base: base, Cluster: clusterConfig(), Version: "v1", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	create := func() error { // a request that client-go does not repeat
		_, err := a.Heartbeat.CoreV1().Nodes().Create(t.Context(), &corev1.Node{}, metav1.CreateOptions{})
		return err
	}
	ctx, cancel := context.WithCancel(t.Context())
	var others sync.WaitGroup
	for range 4 {
		others.Go(func() {
			for ctx.Err() == nil {
				_ = create() // fails where a replacement finds it under way
			}
		})
	}
	for range 500 {
		a.ReplaceConnections()
		if err := create(); !apierrors.IsForbidden(err) {
			t.Errorf("after a replacement: %v", err)
		}
		if s := a.Health.State(); s.Away() {
			t.Errorf("after a replacement: %+v", s)
		}
	}
	cancel()
	others.Wait()
}

// http2Server runs a server until the test has ended, and returns how to reach it.
func http2Server(t *testing.T, serve http.HandlerFunc) *rest.Config {
	t.Helper()
	server := httptest.NewUnstartedServer(serve)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: pem.EncodeToMemory(
		&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})}}
}

// The connections are separate also when a plugin supplies the credentials: client-go shares its own among clients.
func TestEachKindOfRequestHasAConnection(t *testing.T) {
	const version = "client.authentication.k8s.io/v1"
	plugin := &clientcmdapi.ExecConfig{
		Command: "echo", APIVersion: version, InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
		Args: []string{`{"apiVersion":"` + version + `","kind":"ExecCredential","status":{"token":"t"}}`},
	}
	for name, exec := range map[string]*clientcmdapi.ExecConfig{"plain": nil, "plugin": plugin} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			remotes := map[string]bool{}
			base := http2Server(t, func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				remotes[r.RemoteAddr] = true
				w.WriteHeader(http.StatusForbidden)
			})
			base.ExecProvider = exec
			a, err := Connect(Options{Base: base, Cluster: clusterConfig(), Version: "v1",
				Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			for _, client := range []kubernetes.Interface{a.Main, a.Heartbeat, a.Events, a.AccessReviews} {
				_, err := client.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{})
				if !apierrors.IsForbidden(err) {
					t.Error(err)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if len(remotes) != 4 {
				t.Errorf("connections from %v, want 4", remotes)
			}
		})
	}
}
