package https

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/berth-run/berth/internal/api/servertest"
)

const anyPort = "127.0.0.1:0"

// node is a running server over the pods and streams of a test agent.
type node struct {
	*Server
	agent *servertest.Agent
	web   *http.Client
	url   string
	stop  func() error
}

// bearer is an Access for tests. The token "admin" may do everything, and any other token is the "verb
// subresource" that it permits.
type bearer struct{}

func (bearer) ClientCAs() *x509.CertPool { return nil }

func (bearer) Check(r *http.Request, verb string, subresources []string) error {
	who := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	if who == "" {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: 401, Message: "Unauthorized"}}
	}
	for _, sub := range subresources {
		if who == "admin" || who == verb+" "+sub {
			return nil
		}
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{Code: 403,
		Message: fmt.Sprintf("Forbidden (verb=%s, subresource(s)=%v)", verb, subresources)}}
}

// roundTripper adds a bearer token to each request.
type roundTripper struct {
	who  string
	next http.RoundTripper
}

func (t roundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	if t.who != "" {
		r.Header.Set("Authorization", "Bearer "+t.who)
	}
	return t.next.RoundTrip(r)
}

type runtimeParts struct{}

func (runtimeParts) Run(_ context.Context, p *corev1.Pod, container string, command []string) ([]byte, error) {
	if command[0] == "false" {
		return nil, errors.New("command terminated with exit code 1")
	}
	return fmt.Appendf(nil, "%s/%s %v", p.Name, container, command), nil
}

func (runtimeParts) Checkpoint(_ context.Context, _ *corev1.Pod, container, path string, timeout time.Duration) error {
	if container == "db" {
		return errors.New("the runtime cannot checkpoint")
	}
	return os.WriteFile(path, []byte(timeout.String()), 0o600)
}

func (runtimeParts) Summary(_ context.Context, only bool) (*statsv1alpha1.Summary, error) {
	name := "everything"
	if only {
		name = "little"
	}
	return &statsv1alpha1.Summary{Node: statsv1alpha1.NodeStats{NodeName: name}}, nil
}

var allOn = Enabled{DebuggingHandlers: true, SystemLogHandler: true, SystemLogQuery: true, ProfilingHandler: true,
	DebugFlagHandler: true, Checkpoint: true, WebSockets: true, LogStreams: true}

func options(t testing.TB, a *servertest.Agent) Options {
	registry := prometheus.NewRegistry()
	scrape := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	return Options{
		Addresses: Addresses{HTTPS: anyPort}, TLS: &tls.Config{Certificates: []tls.Certificate{certificate(t)}},
		Access: bearer{}, Enabled: allOn, Pods: a.Pods, Streams: a.Streams(), Runtime: runtimeParts{},
		Stats: runtimeParts{},
		Dirs: Dirs{PodLogs: a.LogDir, SystemLogs: t.TempDir(),
			Checkpoints: filepath.Join(t.TempDir(), "checkpoints")},
		Metrics: Metrics{Agent: scrape, CAdvisor: scrape, Resource: scrape, Probes: scrape},
		About: About{
			Version: "v1.2.3", Started: time.Now(),
			Config:       &kubeletconfigv1beta1.KubeletConfiguration{MaxPods: 7},
			Flags:        map[string]string{"v": "2", "node-ip": ""},
			SetVerbosity: func(int) {}, Health: work{},
		},
		Register: registry, Log: slog.New(slog.DiscardHandler),
	}
}

// start runs a server until the test ends.
func start(t testing.TB, change func(*Options)) *node {
	t.Helper()
	a := servertest.Start(t)
	o := options(t, a)
	if change != nil {
		change(&o)
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	select {
	case <-s.Ready():
	case err := <-done:
		cancel()
		t.Fatalf("serve: %v", err)
	}
	n := &node{Server: s, agent: a,
		web: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
			ForceAttemptHTTP2: true}}}
	if o.Addresses.HTTPS != "" {
		n.url = "https://" + s.Addr(o.Addresses.HTTPS).String()
	}
	n.stop = func() error {
		cancel()
		err := <-done
		done <- nil
		return err
	}
	t.Cleanup(func() {
		n.web.CloseIdleConnections()
		if err := n.stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return n
}

func certificate(t testing.TB) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "node"},
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// ask sends a request with a bearer token and returns the code and the body of the answer.
func (n *node) ask(t *testing.T, who, method, path, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, n.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	client := *n.web
	client.Transport = roundTripper{who, n.web.Transport}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// running adds a pod with running containers.
func (n *node) running(name string, containers ...string) *corev1.Pod {
	p := servertest.Pod(name, containers...)
	servertest.Run(p)
	return n.agent.Put(p)
}

// example returns a request path that matches a route.
func example(rt route) string {
	return strings.NewReplacer("{namespace}", "default", "{pod}", "web", "{container}", "app", "{uid}", "uid-1",
		"{check}", "ping", "{path...}", "", "{profile...}", "cmdline", "{$}", "").Replace(rt.path)
}

func TestEveryRouteNeedsRights(t *testing.T) {
	for name, on := range map[string]Enabled{"all on": allOn, "off": {},
		"logs only": {DebuggingHandlers: true, SystemLogHandler: true}} {
		t.Run(name, func(t *testing.T) {
			n := start(t, func(o *Options) { o.Enabled = on })
			for _, rt := range append(n.served(on), route{methods: "GET", path: "/unknown", rights: "proxy"},
				route{methods: "PUT", path: "/pods", rights: "proxy"}) {
				if rt.rights == "" {
					t.Errorf("%s needs no rights", rt.path)
				}
				for _, method := range methods(rt) {
					if method == "" {
						method = "GET"
					}
					if code, body := n.ask(t, "", method, example(rt), ""); code != http.StatusUnauthorized ||
						body != "Unauthorized\n" {
						t.Errorf("%s %s without credentials: %d %q", method, rt.path, code, body)
					}
					want := fmt.Sprintf("Forbidden (verb=%s, subresource(s)=%v)\n", verbFor(rt, method),
						strings.Fields(rt.rights))
					if code, body := n.ask(t, "nobody", method, example(rt), ""); code != http.StatusForbidden ||
						body != want {
						t.Errorf("%s %s without rights: %d %q", method, rt.path, code, body)
					}
				}
			}
		})
	}
}

func TestRights(t *testing.T) {
	n := start(t, nil)
	n.running("web", "app")
	tests := []struct {
		who, method, path string
		want              int
	}{
		{"get pods", "GET", "/pods", 200},
		{"get pods", "GET", "/pods/", 200},
		{"get pods", "GET", "/runningpods/", 200},
		{"get proxy", "GET", "/pods", 200},
		{"get pods", "GET", "/configz", 403},
		{"get configz", "GET", "/configz", 200},
		{"get configz", "GET", "/flagz", 200},
		{"get proxy", "GET", "/flagz", 403},
		{"get statusz", "GET", "/statusz", 200},
		{"get healthz", "GET", "/healthz/syncloop", 200},
		{"get metrics", "GET", "/metrics", 200},
		{"get metrics", "GET", "/metrics/slis", 200},
		{"get proxy", "GET", "/metrics", 403},
		{"get stats", "GET", "/stats/summary", 200},
		{"get log", "GET", "/logs/", 200},
		{"get proxy", "GET", "/logs/", 403},
		{"get proxy", "GET", "/containerLogs/default/none/app", 404},
		{"get proxy", "GET", "/exec/default/web/app?output=1&command=x", 403},
		{"create proxy", "GET", "/exec/default/web/app?output=1&command=x", 400}, // no upgrade
		{"create proxy", "POST", "/exec/default/web/uid-9/app?output=1&command=x", 404},
		{"get proxy", "GET", "/run/default/web/app", 405},
		{"get pods", "GET", "/pods/..%2fconfigz", 403},
		{"get proxy", "GET", "/nothing", 404},
		{"update proxy", "PUT", "/debug/flags/v", 400},
		{"create checkpoint", "POST", "/checkpoint/default/web/app", 200},
		{"create proxy", "POST", "/checkpoint/default/web/app", 403},
	}
	for _, tt := range tests {
		if code, body := n.ask(t, tt.who, tt.method, tt.path, ""); code != tt.want {
			t.Errorf("%s asks %s %s: %d %q, want %d", tt.who, tt.method, tt.path, code, body, tt.want)
		}
	}
}

func TestAnswers(t *testing.T) {
	set := -1
	n := start(t, func(o *Options) { o.About.SetVerbosity = func(v int) { set = v } })
	n.running("web", "app", "db")
	n.agent.Put(servertest.Pod("late", "app"))
	tests := []struct {
		method, path, body string
		code               int
		want               string
	}{
		{"GET", "/healthz", "", 200, "ok"},
		{"GET", "/healthz?verbose&exclude=log", "", 200,
			"[+]ping ok\n[+]log excluded: ok\n[+]syncloop ok\nhealthz check passed\n"},
		{"GET", "/healthz/none", "", 404, "404 page not found\n"},
		{"POST", "/run/default/web/app?cmd=echo+a", "", 200, "web/app [echo a]"},
		{"POST", "/run/default/web/uid-1/app?cmd=echo", "", 200, "web/app [echo]"},
		{"POST", "/run/default/web/app?cmd=false", "", 500,
			"run a command in container \"app\" of pod default/web: command terminated with exit code 1\n"},
		{"POST", "/run/default/none/app?cmd=echo", "", 404, "pods \"default/none\" not found\n"},
		{"POST", "/run/default/web/none?cmd=echo", "", 404, "container \"none\" not found in pod \"web\"\n"},
		{"POST", "/checkpoint/default/web/app?timeout=x", "", 400,
			"query parameter timeout=\"x\" is not a number of seconds\n"},
		{"POST", "/checkpoint/default/web/db", "", 500,
			"checkpointing of default/web/db failed: the runtime cannot checkpoint\n"},
		{"GET", "/containerLogs/default/late/app", "", 400,
			"container \"app\" in pod \"late\" is waiting to start: its pod is pending\n"},
		{"GET", "/containerLogs/default/web/app?tailLines=-1", "", 422,
			"query parameter tailLines=\"-1\" is not a number of at least 0\n"},
		{"GET", "/containerLogs/default/web/app?follow=maybe", "", 400,
			"query parameter follow=\"maybe\" is not true or false\n"},
		{"PUT", "/debug/flags/v", "4", 200, "successfully set klog.logging.verbosity to 4"},
		{"PUT", "/debug/flags/v", "many", 400, "verbosity \"many\" is not a number of at least 0\n"},
		{"GET", "/flagz", "", 200, fmt.Sprintf(zpageHeader, "kubelet", "flagz") + "node-ip=\nv=2\n"},
		{"POST", "/stats/summary?only_cpu_and_memory=true", "", 200,
			`{"node":{"nodeName":"little","startTime":null},"pods":null}`},
	}
	for _, tt := range tests {
		code, body := n.ask(t, "admin", tt.method, tt.path, tt.body)
		if diff := cmp.Diff([]any{tt.code, tt.want}, []any{code, body}); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", tt.method, tt.path, diff)
		}
	}
	if set != 4 {
		t.Errorf("verbosity is %d", set)
	}
	for path, want := range map[string]string{
		"/configz":      `{"kubeletconfig":{`,
		"/configz?":     `"maxPods":7`,
		"/pods":         `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[{"metadata":{"name":"late"`,
		"/runningpods/": `"spec":{"containers":[{"name":"app"`,
		"/statusz":      "Binary version: v1.2.3\nPaths: /attach /checkpoint /configz",
		"/metrics": `kubelet_http_requests_total{long_running="false",method="GET",path="healthz",` +
			`server_type="readwrite"} 3`,
		"/metrics/slis": `kubernetes_healthcheck{name="syncloop",type="healthz"} 1`,
		"/debug/pprof/": "Types of profiles available",
	} {
		if code, body := n.ask(t, "admin", "GET", path, ""); code != 200 || !strings.Contains(body, want) {
			t.Errorf("GET %s: %d, want %q in %s", path, code, want, body)
		}
	}
}

func TestCheckpointIsPrivate(t *testing.T) {
	n := start(t, nil)
	n.running("web", "app")
	code, body := n.ask(t, "admin", "POST", "/checkpoint/default/web/app?timeout=3", "")
	files, err := filepath.Glob(n.Dirs.Checkpoints + "/checkpoint-web_default-app-*.tar")
	if err != nil || code != 200 || len(files) != 1 || body != fmt.Sprintf(`{"items":[%q]}`, files[0]) {
		t.Fatalf("checkpoint: %d %s, %v, %v", code, body, files, err)
	}
	st, err := os.Stat(n.Dirs.Checkpoints)
	if err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("directory of checkpoints: %v, %v", st, err)
	}
	if timeout, err := os.ReadFile(files[0]); err != nil || string(timeout) != "3s" {
		t.Errorf("timeout: %s, %v", timeout, err)
	}
}

func TestZpageForm(t *testing.T) {
	const json = "application/json;v=v1beta1;g=config.k8s.io;as=Statusz"
	n := start(t, nil)
	for accept, want := range map[string]string{
		"":               "text  <nil>",
		"text/html, */*": "text  <nil>",
		json:             "json v1beta1 <nil>",
		"a;=, " + json:   "json v1beta1 <nil>",
		"application/yaml;v=v1alpha1;g=config.k8s.io;as=Statusz": "yaml v1alpha1 <nil>",
		"application/json": "  only text/plain and application/json or application/yaml with " +
			"g=config.k8s.io;v=v1beta1;as=Statusz are served",
	} {
		form, version, err := zpageForm(accept, "Statusz")
		if got := fmt.Sprint(form, " ", version, " ", err); got != want {
			t.Errorf("Accept: %s: %s, want %s", accept, got, want)
		}
	}
	for _, rt := range []string{"/statusz", "/flagz"} {
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, n.url+rt, nil)
		r.Header.Set("Accept",
			strings.Replace(json, "Statusz", map[string]string{"/statusz": "Statusz", "/flagz": "Flagz"}[rt], 1))
		answer, err := roundTripper{"admin", n.web.Transport}.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if body, err := io.ReadAll(answer.Body); err != nil ||
			!strings.Contains(string(body), `"apiVersion":"config.k8s.io/v1beta1","metadata":{"name":"kubelet"}`) {
			t.Errorf("%s: %s, %v", rt, body, err)
		}
	}
}

func TestDisabledHandlers(t *testing.T) {
	tests := []struct {
		on         Enabled
		path, want string
	}{
		{Enabled{}, "/exec/default/web/app", "405 Debug endpoints are disabled.\n"},
		{Enabled{}, "/containerLogs/default/web/app", "405 Debug endpoints are disabled.\n"},
		{Enabled{}, "/runningpods/", "405 Debug endpoints are disabled.\n"},
		{Enabled{}, "/logs/", "405 Debug endpoints are disabled.\n"},
		{Enabled{}, "/debug/pprof/heap", "405 Debug endpoints are disabled.\n"},
		{Enabled{}, "/configz", "404 404 page not found\n"},
		{Enabled{}, "/healthz", "200 ok"},
		{Enabled{DebuggingHandlers: true}, "/checkpoint/default/web/app", "404 404 page not found\n"},
		{Enabled{DebuggingHandlers: true}, "/logs/syslog", "405 logs endpoint is disabled.\n"},
		{Enabled{DebuggingHandlers: true}, "/debug/pprof/heap", "405 profiling endpoint is disabled.\n"},
		{Enabled{DebuggingHandlers: true}, "/debug/flags/v", "405 flags endpoint is disabled.\n"},
	}
	for _, tt := range tests {
		n := start(t, func(o *Options) { o.Enabled = tt.on })
		code, body := n.ask(t, "admin", "GET", tt.path, "")
		if got := fmt.Sprint(code, " ", body); got != tt.want {
			t.Errorf("%+v: GET %s: %q, want %q", tt.on, tt.path, got, tt.want)
		}
	}
}

func TestPorts(t *testing.T) {
	const readOnly, healthz = "localhost:0", "127.0.0.1:00"
	n := start(t, func(o *Options) {
		o.Addresses = Addresses{HTTPS: anyPort, ReadOnly: readOnly, Healthz: healthz}
		o.About.Health = work{err: errors.New("the runtime does not answer")}
	})
	get := func(configured, path string) string {
		t.Helper()
		answer, err := n.web.Get("http://" + n.Addr(configured).String() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(answer.StatusCode, " ", string(body))
	}
	tests := []struct{ address, path, want string }{
		{healthz, "/healthz", "200 ok"},
		{healthz, "/healthz/ping", "200 ok"},
		{healthz, "/pods", "404 404 page not found\n"},
		{readOnly, "/healthz",
			"500 [+]ping ok\n[+]log ok\n[-]syncloop failed: reason withheld\nhealthz check failed\n"},
		{readOnly, "/healthz/syncloop", "500 internal server error: the runtime does not answer\n"},
		{readOnly, "/pods", `200 {"kind":"PodList","apiVersion":"v1","metadata":{},"items":[]}`},
		{readOnly, "/exec/default/web/app", "405 Debug endpoints are disabled.\n"},
		{readOnly, "/configz", "404 404 page not found\n"},
	}
	for _, tt := range tests {
		if got := get(tt.address, tt.path); got != tt.want {
			t.Errorf("%s%s: %q, want %q", tt.address, tt.path, got, tt.want)
		}
	}
	second, err := New(Options{Addresses: Addresses{HTTPS: n.Addr(anyPort).String()}, TLS: n.TLS, Access: bearer{},
		Register: prometheus.NewRegistry(), Log: n.Log})
	if err == nil {
		err = second.Run(t.Context())
	}
	if err == nil || !strings.Contains(err.Error(), "next: stop the other kubelet or agent") {
		t.Errorf("a second server on the port: %v", err)
	}
}

func TestHTTP2AndReload(t *testing.T) {
	certs := []tls.Certificate{certificate(t), certificate(t)}
	served := &certs[0]
	n := start(t, func(o *Options) {
		o.TLS = &tls.Config{MinVersion: tls.VersionTLS13,
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
				return served, nil
			}}
	})
	for i := range certs {
		served = &certs[i]
		n.web.CloseIdleConnections()
		answer, err := roundTripper{"admin", n.web.Transport}.RoundTrip(must(http.NewRequestWithContext(t.Context(),
			http.MethodGet, n.url+"/healthz", nil)))
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.ProtoMajor != 2 || !slices.Equal(answer.TLS.PeerCertificates[0].Raw, certs[i].Certificate[0]) {
			t.Errorf("certificate %d: protocol %s, another certificate", i, answer.Proto)
		}
	}
	old := &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}
	if c, err := tls.Dial("tcp", n.Addr(anyPort).String(), old); err == nil {
		_ = c.Close()
		t.Error("a client with TLS 1.2 got an answer")
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestRequestsAreCounted(t *testing.T) {
	n := start(t, nil)
	n.ask(t, "admin", "GET", "/pods", "")
	n.ask(t, "admin", "BREW", "/coffee", "")
	want := `
# HELP kubelet_http_requests_total HTTP requests received since the agent started.
# TYPE kubelet_http_requests_total counter
kubelet_http_requests_total{long_running="false",method="GET",path="pods",server_type="readwrite"} 1
kubelet_http_requests_total{long_running="false",method="other",path="other",server_type="readwrite"} 1
`
	if err := testutil.CollectAndCompare(n.requests.total, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

func TestBuckets(t *testing.T) {
	for path, want := range map[string]string{
		"/metrics": "metrics", "/metrics/cadvisor": "metrics/cadvisor", "/metrics/a/b": "metrics/a",
		"/exec/{namespace}": "exec", "/debug/pprof/": "debug", "": "",
	} {
		if got := bucket(path); got != want {
			t.Errorf("bucket(%q) = %q, want %q", path, got, want)
		}
	}
	if longRunning("portForward") != "true" || longRunning("pods") != "false" {
		t.Error("long running requests")
	}
}

// work is a Health that the test sets.
type work struct {
	err     error
	hanging []string
}

func (w work) Healthy(context.Context) error { return w.err }
func (w work) Hanging() []string             { return w.hanging }

func TestHealthNamesHangingWorkersAndSucceeds(t *testing.T) {
	line := "the worker of pod default/web hangs in step/volume since 2026-03-01T12:00:00Z"
	n := start(t, func(o *Options) { o.About.Health = work{hanging: []string{line}} })
	for path, want := range map[string]string{
		"/healthz":          "200 ok\n" + line,
		"/healthz/syncloop": "200 ok",
		"/healthz?verbose":  "200 [+]ping ok\n[+]log ok\n[+]syncloop ok\n" + line + "\nhealthz check passed\n",
	} {
		code, body := n.ask(t, "admin", "GET", path, "")
		if got := fmt.Sprint(code, " ", body); got != want {
			t.Errorf("GET %s: %q, want %q", path, got, want)
		}
	}
}
