package auth

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-run/berth/internal/base/eventually"
	"github.com/berth-run/berth/internal/cluster/kubeapi/kubeapitest"
)

var shared = kubeapitest.NewShared(kubeapitest.Options{})

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newAuth(t *testing.T, o Options) *Auth {
	t.Helper()
	o.Node, o.Log = "n1", slog.New(slog.DiscardHandler)
	a, err := New(o)
	check(t, err)
	check(t, a.Load())
	return a
}

// request returns a request with a certificate, a bearer token, both or none.
func request(t *testing.T, cert []byte, token string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://n1:10250/", nil)
	check(t, err)
	if cert != nil {
		block, _ := pem.Decode(cert)
		c, err := x509.ParseCertificate(block.Bytes)
		check(t, err)
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{c}}
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r
}

// verdict returns the code and message of an answer.
func verdict(err error) string {
	var st apierrors.APIStatus
	if errors.As(err, &st) {
		return fmt.Sprintf("%d %s", st.Status().Code, st.Status().Message)
	}
	return fmt.Sprint(err)
}

// grant lets a user do verb on a subresource of nodes.
func grant(t *testing.T, c kubernetes.Interface, who rbacv1.Subject, verb, subresource string) {
	t.Helper()
	name := metav1.ObjectMeta{GenerateName: "test-"}
	role, err := c.RbacV1().ClusterRoles().Create(t.Context(),
		&rbacv1.ClusterRole{ObjectMeta: name, Rules: []rbacv1.PolicyRule{
			{Verbs: []string{verb}, APIGroups: []string{""}, Resources: []string{"nodes/" + subresource}}}},
		metav1.CreateOptions{})
	check(t, err)
	_, err = c.RbacV1().ClusterRoleBindings().Create(t.Context(),
		&rbacv1.ClusterRoleBinding{ObjectMeta: name, Subjects: []rbacv1.Subject{who},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name}},
		metav1.CreateOptions{})
	check(t, err)
	// The authorizer sees it a moment later.
	eventually.True(t, fmt.Sprintf("%v may %s %s", who, verb, subresource), func() bool {
		spec := authorizationv1.SubjectAccessReviewSpec{User: userName(who),
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Resource: nodes,
				Subresource: subresource}}
		r, err := c.AuthorizationV1().SubjectAccessReviews().Create(t.Context(),
			&authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
		check(t, err)
		return r.Status.Allowed
	})
}

func userName(who rbacv1.Subject) string {
	if who.Kind == rbacv1.ServiceAccountKind {
		return "system:serviceaccount:" + who.Namespace + ":" + who.Name
	}
	return who.Name
}

func nodeClient(t *testing.T, c *kubeapitest.Cluster) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(c.NodeConfig("n1"))
	check(t, err)
	return client
}

// account creates a service account and returns it with a token.
func account(t *testing.T, c *kubeapitest.Cluster) (rbacv1.Subject, string) {
	t.Helper()
	ns := c.Namespace()
	accounts := c.Client().CoreV1().ServiceAccounts(ns)
	_, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "scraper"}},
		metav1.CreateOptions{})
	check(t, err)
	token, err := accounts.CreateToken(t.Context(), "scraper", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	check(t, err)
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: "scraper"}, token.Status.Token
}

// The node asks a real API server, with its own certificate as credentials.
func TestCheckWithReviews(t *testing.T) {
	c := shared.Cluster(t)
	subject, token := account(t, c)
	grant(t, c.Client(), subject, "get", "metrics")
	grant(t, c.Client(), subject, "get", "pods")
	apiserver := c.Config(kubeapitest.Identity{User: "apiserver",
		Groups: []string{"kube-apiserver-kubelet-client"}}).CertData
	stranger := c.Config(kubeapitest.Identity{User: "stranger"}).CertData
	expired := c.Config(kubeapitest.Identity{User: "apiserver", Lifetime: -time.Hour}).CertData

	o := Options{ClientCAFile: c.CA(), Tokens: true, TokenTTL: time.Minute, Mode: ModeWebhook, AllowedTTL: time.Minute,
		DeniedTTL: time.Minute, TokenReviews: nodeClient(t, c), AccessReviews: nodeClient(t, c)}
	strict := newAuth(t, o)
	o.Anonymous = true
	lax := newAuth(t, o)
	const unauthorized = "401 Unauthorized"
	account := userName(subject)
	tests := []struct {
		name                string
		auth                *Auth
		cert                []byte
		token, verb, rights string
		want                string
	}{
		{"nothing shown", strict, nil, "", "get", "metrics", unauthorized},
		{"bad token", strict, nil, "no.such.token", "get", "metrics", unauthorized},
		{"certificate that has expired", strict, expired, "", "get", "metrics", unauthorized},
		{"token with the right", strict, nil, token, "get", "metrics", "<nil>"},
		{"token with another verb", strict, nil, token, "create", "metrics",
			"403 Forbidden (user=" + account + ", verb=create, resource=nodes, subresource(s)=[metrics])"},
		{"fine-grained right", strict, nil, token, "get", "pods proxy", "<nil>"},
		{"neither of two", strict, nil, token, "get", "configz proxy",
			"403 Forbidden (user=" + account + ", verb=get, resource=nodes, subresource(s)=[configz proxy])"},
		{"the API server", strict, apiserver, "", "create", "proxy", "<nil>"},
		{"the API server, by proxy", strict, apiserver, "", "get", "configz proxy", "<nil>"},
		{"a stranger with a certificate", strict, stranger, "", "get", "proxy",
			"403 Forbidden (user=stranger, verb=get, resource=nodes, subresource(s)=[proxy])"},
		{"a bad certificate and a good token", strict, expired, token, "get", "metrics", "<nil>"},
		{"anonymous", lax, nil, "", "get", "healthz",
			"403 Forbidden (user=system:anonymous, verb=get, resource=nodes, subresource(s)=[healthz])"},
		{"anonymous with a bad token", lax, nil, "no.such.token", "get", "healthz", unauthorized},
	}
	for _, tt := range tests {
		r := request(t, tt.cert, tt.token)
		if got := verdict(tt.auth.Check(r, tt.verb, strings.Fields(tt.rights))); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
		if tt.want == "<nil>" && r.Header.Get("Authorization") != "" {
			t.Errorf("%s: the request still has the token", tt.name)
		}
	}
}

// Cached answers are valid while the API server is unreachable, and only as long as their TTL.
func TestReviewAnswersAreCached(t *testing.T) {
	c := shared.Cluster(t)
	subject, token := account(t, c)
	grant(t, c.Client(), subject, "get", "metrics")
	o := Options{Tokens: true, TokenTTL: time.Minute, Mode: ModeWebhook, AllowedTTL: time.Minute,
		DeniedTTL: time.Minute, TokenReviews: nodeClient(t, c), AccessReviews: nodeClient(t, c)}
	cached := newAuth(t, o)
	o.AllowedTTL, o.DeniedTTL = 0, 0
	uncached := newAuth(t, o)
	o.TokenTTL = 0
	noTokens := newAuth(t, o)
	for _, a := range []*Auth{cached, uncached, noTokens} {
		check(t, a.Check(request(t, nil, token), "get", []string{"metrics"}))
		if got := verdict(a.Check(request(t, nil, token), "get", []string{"log"})); !strings.HasPrefix(got, "403") {
			t.Errorf("log: %s", got)
		}
	}
	c.Disconnect()
	defer c.Connect()
	c.CutConnections()
	for name, tt := range map[string]struct {
		auth   *Auth
		rights string
		want   string
	}{
		"allowed": {cached, "metrics", "<nil>"},
		"denied": {cached, "log",
			"403 Forbidden (user=" + userName(subject) + ", verb=get, resource=nodes, subresource(s)=[log])"},
		"never requested": {cached, "stats",
			"500 Authorization error (user=" + userName(subject) + ", verb=get, resource=nodes, subresource=stats)"},
		"cache disabled": {uncached, "metrics",
			"500 Authorization error (user=" + userName(subject) + ", verb=get, resource=nodes, subresource=metrics)"},
		"token cache disabled": {noTokens, "metrics", "401 Unauthorized"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		got := verdict(tt.auth.Check(request(t, nil, token).WithContext(ctx), "get", []string{tt.rights}))
		cancel()
		if got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

func TestCheckWithoutReviews(t *testing.T) {
	c := shared.Cluster(t)
	cert := c.Config(kubeapitest.Identity{User: "anyone"}).CertData
	a := newAuth(t, Options{ClientCAFile: c.CA(), Mode: ModeAlwaysAllow})
	if got := verdict(a.Check(request(t, cert, ""), "create", []string{"proxy"})); got != "<nil>" {
		t.Errorf("certificate: %s", got)
	}
	if got := verdict(a.Check(request(t, nil, "token"), "create", []string{"proxy"})); got != "401 Unauthorized" {
		t.Errorf("token: %s", got)
	}
	open := newAuth(t, Options{Anonymous: true, Mode: ModeAlwaysAllow})
	if got := verdict(open.Check(request(t, cert, ""), "create", []string{"proxy"})); got != "<nil>" ||
		open.ClientCAs() != nil {
		t.Errorf("anonymous request: %s", got)
	}
}

func TestBadOptions(t *testing.T) {
	for want, o := range map[string]Options{
		`authorization.mode "" is unknown: set Webhook or AlwaysAllow`: {},
		"authorization.mode Webhook needs an API server to ask: give --kubeconfig, or set the mode to AlwaysAllow": {
			Mode: ModeWebhook},
		"authentication.webhook.enabled needs an API server to ask: give --kubeconfig, or set it to false": {
			Mode: ModeAlwaysAllow, Tokens: true},
	} {
		if _, err := New(o); err == nil || err.Error() != want {
			t.Errorf("%+v: %v", o, err)
		}
	}
	empty := filepath.Join(t.TempDir(), "ca.crt")
	check(t, os.WriteFile(empty, []byte("nothing"), 0o600))
	for file, want := range map[string]string{empty: "has no certificate in PEM", empty + "x": "no such file"} {
		a, err := New(Options{ClientCAFile: file, Mode: ModeAlwaysAllow})
		check(t, err)
		if err := a.Load(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// A replaced client CA file is used from the next check on. A bad file is ignored.
func TestClientCAReload(t *testing.T) {
	c := shared.Cluster(t)
	data, err := os.ReadFile(c.CA())
	check(t, err)
	other := otherAuthority(t)
	file := filepath.Join(t.TempDir(), "ca.crt")
	check(t, os.WriteFile(file, other, 0o600))
	a := newAuth(t, Options{ClientCAFile: file, Mode: ModeAlwaysAllow})
	cert := c.Config(kubeapitest.Identity{User: "anyone"}).CertData
	for _, step := range []struct {
		content []byte
		want    string
	}{{other, "401 Unauthorized"}, {data, "<nil>"}, {[]byte("half a fi"), "<nil>"}, {other, "401 Unauthorized"}} {
		check(t, os.WriteFile(file+".new", step.content, 0o600))
		check(t, os.Rename(file+".new", file))
		a.clients.checked = time.Time{} // the next check is due
		if got := verdict(a.Check(request(t, cert, ""), "get", []string{"metrics"})); got != step.want {
			t.Errorf("with %.20q: %s, want %s", step.content, got, step.want)
		}
	}
}

// With the feature gate off, the file that was read first counts until the agent restarts.
func TestClientCAIsReadOnce(t *testing.T) {
	c := shared.Cluster(t)
	file := filepath.Join(t.TempDir(), "ca.crt")
	data, err := os.ReadFile(c.CA())
	check(t, err)
	check(t, os.WriteFile(file, data, 0o600))
	a := newAuth(t, Options{ClientCAFile: file, ClientCAOnce: true, Mode: ModeAlwaysAllow})
	cert := c.Config(kubeapitest.Identity{User: "anyone"}).CertData
	for range 2 {
		a.clients.checked = time.Time{}
		if got := verdict(a.Check(request(t, cert, ""), "get", []string{"metrics"})); got != "<nil>" {
			t.Errorf("the answer is %s", got)
		}
		check(t, os.WriteFile(file, otherAuthority(t), 0o600))
	}
}

// otherAuthority returns the certificate of an authority that signed none of the test's certificates.
func otherAuthority(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true,
		NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	check(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func TestReviewSpecAndKey(t *testing.T) {
	who := &user.DefaultInfo{Name: "u", UID: "1", Groups: []string{"g"},
		Extra: map[string][]string{"b": {"2"}, "a": {"1"}}}
	spec, key, err := reviewFor(who, attributes{"n1", "get", "pods"})
	check(t, err)
	want := authorizationv1.SubjectAccessReviewSpec{User: "u", UID: "1", Groups: []string{"g"},
		Extra: map[string]authorizationv1.ExtraValue{"a": {"1"}, "b": {"2"}},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Version: "v1", Resource: "nodes",
			Subresource: "pods", Name: "n1"}}
	if diff := cmp.Diff(want, spec); diff != "" {
		t.Error(diff)
	}
	keys := map[string]string{key: "first"}
	for name, u := range map[string]*user.DefaultInfo{"name": {Name: "v"}, "group": {Name: "u", Groups: []string{"h"}},
		"uid": {Name: "u", UID: "2"}} {
		_, key, err := reviewFor(u, attributes{"n1", "get", "pods"})
		if err != nil || key == "" || keys[key] != "" {
			t.Errorf("another %s: key of %s, %v", name, keys[key], err)
		}
		keys[key] = name
	}
	if _, key, err := reviewFor(&user.DefaultInfo{Name: strings.Repeat("u", maxKey)}, attributes{}); err != nil ||
		key != "" {
		t.Errorf("a long name has a cache key: %v", err)
	}
}

// silent is an API server that answers no review until its test ends.
type silent[T any] struct{ asked chan struct{} }

func (s silent[T]) Create(ctx context.Context, review T, _ metav1.CreateOptions) (T, error) {
	s.asked <- struct{}{}
	<-ctx.Done()
	return review, ctx.Err()
}

// Requests with random tokens wait for the API server. One more is refused at once.
func TestReviewsThatWaitAreBounded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	asked := make(chan struct{})
	tokens := newTokenReviews(silent[*authenticationv1.TokenReview]{asked})
	rights := newAccessReviews(silent[*authorizationv1.SubjectAccessReview]{asked}, time.Minute, time.Minute)
	for i := range maxPending {
		go func() { _, _, _ = tokens.AuthenticateToken(ctx, fmt.Sprint(i)) }()
		<-asked
		go func() {
			_, _ = rights.allowed(ctx, &user.DefaultInfo{Name: fmt.Sprint(i)}, attributes{node: "n1", verb: "get"})
		}()
		<-asked
	}
	if _, _, err := tokens.AuthenticateToken(ctx, "another"); !errors.Is(err, errBusy) {
		t.Errorf("a token over the bound: %v", err)
	}
	if _, err := rights.allowed(ctx, &user.DefaultInfo{Name: "another"}, attributes{node: "n1",
		verb: "get"}); !errors.Is(err, errBusy) {
		t.Errorf("a question about rights over the bound: %v", err)
	}
	if got := verdict(busy()); !strings.HasPrefix(got, "429 ") {
		t.Errorf("the answer is %q", got)
	}
}
