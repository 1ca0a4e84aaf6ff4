package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpchealth "google.golang.org/grpc/health"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri"
)

const second = time.Second

// compare compares two answers, with the error as text.
func compare(t *testing.T, want, got answer) {
	t.Helper()
	text := func(a answer) [3]string { return [3]string{string(a.result), a.output, fmt.Sprint(a.err)} }
	if diff := cmp.Diff(text(want), text(got)); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
}

func TestHTTP(t *testing.T) {
	mux := http.NewServeMux()
	for code, text := range map[int]string{200: "fine", 204: "", 399: "", 400: "secret", 500: "secret"} {
		mux.HandleFunc("/"+strconv.Itoa(code), func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			fmt.Fprint(w, text)
		})
	}
	mux.HandleFunc("/big", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, strings.Repeat("x", 20<<10)) })
	mux.HandleFunc("/here", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/200", http.StatusFound)
	})
	mux.HandleFunc("/round", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/round", http.StatusFound)
	})
	mux.HandleFunc("/away", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "http://elsewhere.invalid/")
		w.WriteHeader(http.StatusFound)
		fmt.Fprint(w, "gone there")
	})
	mux.HandleFunc("/cut", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		fmt.Fprint(w, "short")
	})
	quit := make(chan struct{})
	mux.HandleFunc("/hang", func(http.ResponseWriter, *http.Request) { <-quit })
	plain, secure := httptest.NewServer(mux), httptest.NewTLSServer(mux)
	t.Cleanup(func() { close(quit); plain.Close(); secure.Close() })
	secure.Config.ErrorLog = nil

	tests := []struct {
		name, path string
		want       answer
	}{
		{"ok", "/200", answer{result: success, output: "fine"}},
		{"no content", "/204", answer{result: success}},
		{"last code that is a success", "/399",
			answer{result: warning, output: "Probe terminated redirects, Response body: "}},
		{"first code that is none; the body is not shown", "/400",
			answer{result: failure, output: "HTTP probe failed with statuscode: 400"}},
		{"server error", "/500", answer{result: failure, output: "HTTP probe failed with statuscode: 500"}},
		{"long body", "/big", answer{result: success, output: strings.Repeat("x", 10<<10)}},
		{"redirect on the same host is followed", "/here", answer{result: success, output: "fine"}},
		{"redirect to another host is not", "/away",
			answer{result: warning, output: "Probe terminated redirects, Response body: gone there"}},
		{"redirect without end", "/round", answer{result: failure, output: `Get "/round": stopped after 10 redirects`}},
		{"body ends early", "/cut", answer{result: failure, err: errors.New("unexpected EOF")}},
	}
	for _, server := range []*httptest.Server{plain, secure} {
		u, err := url.Parse(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		for _, tt := range tests {
			t.Run(u.Scheme+" "+tt.name, func(t *testing.T) {
				get := &corev1.HTTPGetAction{Path: tt.path, Port: intstr.Parse(u.Port()),
					Scheme: corev1.URIScheme(strings.ToUpper(u.Scheme))}
				req, err := newRequest(t.Context(), get, nil, u.Hostname())
				if err != nil {
					t.Fatal(err)
				}
				compare(t, tt.want, askHTTP(newTransport(), req, 5*second))
			})
		}
	}
	t.Run("timeout", func(t *testing.T) {
		req, err := http.NewRequest(http.MethodGet, plain.URL+"/hang", nil)
		if err != nil {
			t.Fatal(err)
		}
		compare(t, failed("Get %q: context deadline exceeded (Client.Timeout exceeded while awaiting headers)",
			plain.URL+"/hang"),
			askHTTP(newTransport(), req, 20*time.Millisecond))
	})
}

func TestRequest(t *testing.T) {
	ports := []corev1.ContainerPort{{Name: "web", ContainerPort: 8080}}
	header := func(pairs ...string) (all []corev1.HTTPHeader) {
		for i := 0; i < len(pairs); i += 2 {
			all = append(all, corev1.HTTPHeader{Name: pairs[i], Value: pairs[i+1]})
		}
		return all
	}
	type request struct {
		URL, Host string
		Header    http.Header
	}
	usual := http.Header{"User-Agent": {"kube-probe/1.36"}, "Accept": {"*/*"}}
	tests := []struct {
		name string
		get  corev1.HTTPGetAction
		want request
	}{
		{"defaults", corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(80)},
			request{"http://10.0.0.7:80/", "", usual}},
		{"named port, https, query",
			corev1.HTTPGetAction{Path: "/health?full=1", Port: intstr.FromString("web"), Scheme: corev1.URISchemeHTTPS},
			request{"https://10.0.0.7:8080/health?full=1", "", usual}},
		{"host", corev1.HTTPGetAction{Host: "::1", Port: intstr.FromString("81")},
			request{"http://[::1]:81", "", usual}},
		{"path that is no URL", corev1.HTTPGetAction{Path: "/%zz", Port: intstr.FromInt32(80)},
			request{"http://10.0.0.7:80/%25zz", "", usual}},
		{"headers",
			corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(80),
				HTTPHeaders: header("X-A", "1", "X-A", "2", "Host", "shop.example", "User-Agent", "me", "Accept",
					"text/plain")},
			request{"http://10.0.0.7:80/", "shop.example",
				http.Header{"X-A": {"1", "2"}, "Host": {"shop.example"}, "User-Agent": {"me"},
					"Accept": {"text/plain"}}}},
		{"empty header takes the default away",
			corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(80),
				HTTPHeaders: header("Accept", "", "User-Agent", "")},
			request{"http://10.0.0.7:80/", "", http.Header{"User-Agent": {""}}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			req, err := newRequest(t.Context(), &tt.get, ports, "10.0.0.7")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, request{req.URL.String(), req.Host, req.Header}); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPort(t *testing.T) {
	ports := []corev1.ContainerPort{{Name: "web", ContainerPort: 8080}, {Name: "none"}}
	type port struct {
		Number int
		Err    string
	}
	tests := map[string]struct {
		in   intstr.IntOrString
		want port
	}{
		"number":         {intstr.FromInt32(80), port{Number: 80}},
		"name":           {intstr.FromString("web"), port{Number: 8080}},
		"number as text": {intstr.FromString("81"), port{Number: 81}},
		"unknown name": {intstr.FromString("db"),
			port{Err: `port "db" is neither a number nor the name of a port of the container`}},
		"no number":       {intstr.FromInt32(0), port{Err: "invalid port number: 0"}},
		"too large":       {intstr.FromInt32(65536), port{Err: "invalid port number: 65536"}},
		"name of nothing": {intstr.FromString("none"), port{Err: "invalid port number: 0"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			n, err := portOf(tt.in, ports)
			got := port{Number: n}
			if err != nil {
				got.Err = err.Error()
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("port (-want +got):\n%s", diff)
			}
		})
	}
}

// listen returns a loopback listener that is closed when the test ends.
func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// closed returns an address without a listener.
func closed(t *testing.T) string {
	l := listen(t)
	_ = l.Close()
	return l.Addr().String()
}

func TestTCP(t *testing.T) {
	open, shut := listen(t).Addr().String(), closed(t)
	compare(t, answer{result: success}, askTCP(t.Context(), open, second))
	compare(t, failed("dial tcp %s: connect: connection refused", shut), askTCP(t.Context(), shut, second))
}

// broken answers every health check with an error code.
type broken struct {
	health.UnimplementedHealthServer
	code codes.Code
}

func (b broken) Check(ctx context.Context, _ *health.HealthCheckRequest) (*health.HealthCheckResponse, error) {
	if b.code == codes.DeadlineExceeded {
		<-ctx.Done()
	}
	return nil, status.Error(b.code, "broken")
}

func TestGRPC(t *testing.T) {
	serve := func(register func(*grpc.Server)) string {
		l, s := listen(t), grpc.NewServer()
		register(s)
		go func() { _ = s.Serve(l) }() // Stop ends it with the test
		t.Cleanup(s.Stop)
		return l.Addr().String()
	}
	known := grpchealth.NewServer()
	known.SetServingStatus("down", health.HealthCheckResponse_NOT_SERVING)
	good := serve(func(s *grpc.Server) { health.RegisterHealthServer(s, known) })
	bare := serve(func(*grpc.Server) {})
	slow := serve(func(s *grpc.Server) { health.RegisterHealthServer(s, broken{code: codes.DeadlineExceeded}) })
	sick := serve(func(s *grpc.Server) { health.RegisterHealthServer(s, broken{code: codes.Internal}) })
	mute, shut := listen(t).Addr().String(), closed(t)
	tests := []struct {
		name, addr, service string
		timeout             time.Duration
		want                answer
	}{
		{"serving", good, "", 5 * second, answer{result: success, output: "service healthy"}},
		{"not serving", good, "down", 5 * second, failed(`service unhealthy (responded with "NOT_SERVING")`)},
		{"unknown service", good, "nope", 5 * second,
			failed("error: health rpc probe failed: rpc error: code = NotFound desc = unknown service")},
		{"no health service", bare, "", 5 * second,
			failed(
				"error: this server does not implement the grpc health protocol (grpc.health.v1.Health): unknown " +
					"service grpc.health.v1.Health")},
		{"server fails", sick, "", 5 * second,
			failed("error: health rpc probe failed: rpc error: code = Internal desc = broken")},
		{"server hangs", slow, "", 200 * time.Millisecond, failed("timeout: health rpc did not complete within 200ms")},
		{"nobody listens: reported before the timeout", shut, "", time.Hour,
			failed("error: failed to connect service at %q: dial tcp %s: connect: connection refused", shut, shut)},
		{"not a gRPC server", mute, "", 100 * time.Millisecond,
			failed("timeout: failed to connect service %q within 100ms: CONNECTING: context deadline exceeded", mute)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			compare(t, tt.want, askGRPC(t.Context(), tt.addr, tt.service, tt.timeout))
		})
	}
}

// execFunc is a runtime that executes commands.
type execFunc func(context.Context, *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error)

func (f execFunc) ExecSync(ctx context.Context, r *runtimeapi.ExecSyncRequest,
	_ ...grpc.CallOption) (*runtimeapi.ExecSyncResponse, error) {
	return f(ctx, r)
}

func TestExec(t *testing.T) {
	long := strings.Repeat("x", 8<<10)
	deadline := status.Error(codes.DeadlineExceeded, "timeout 1s exceeded")
	tests := []struct {
		name string
		resp *runtimeapi.ExecSyncResponse
		err  error
		want answer
	}{
		{"exit 0", &runtimeapi.ExecSyncResponse{Stdout: []byte("out "), Stderr: []byte("err")}, nil,
			answer{result: success, output: "out err"}},
		{"exit 3", &runtimeapi.ExecSyncResponse{ExitCode: 3, Stderr: []byte("no")}, nil,
			answer{result: failure, output: "no"}},
		{"much output", &runtimeapi.ExecSyncResponse{Stdout: []byte(long), Stderr: []byte(long)}, nil,
			answer{result: success, output: strings.Repeat("x", 10<<10)}},
		{"command takes too long", nil, &cri.Error{Call: "ExecSync", Err: deadline},
			answer{result: failure, output: `command timed out: "cat /ok" timed out after 1s`, late: true}},
		{"runtime hangs", nil, &cri.Error{Call: "ExecSync", Endpoint: "e", Limit: second, Err: deadline},
			answer{result: unknown,
				err: errors.New("run command in container: ExecSync: no answer from runtime at e within 1s")}},
		{"container is gone", nil, status.Error(codes.NotFound, "no container"),
			answer{result: unknown,
				err: errors.New("run command in container: rpc error: code = NotFound desc = no container")}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var asked *runtimeapi.ExecSyncRequest
			p := &asker{
				cri: execFunc(func(_ context.Context, r *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse,
					error) {
					asked = r
					return tt.resp, tt.err
				})}
			compare(t, tt.want, p.askExec(t.Context(), "c1", []string{"cat", "/ok"}, second))
			if asked.ContainerId != "c1" || asked.Timeout != 1 {
				t.Errorf("asked %v", asked)
			}
		})
	}
}

func TestNoHandler(t *testing.T) {
	c := check{ctx: t.Context(), spec: &corev1.Probe{}, pod: &corev1.Pod{}}
	c.pod.Namespace, c.pod.Name = "default", "web"
	c.container.Container = &corev1.Container{Name: "app"}
	compare(t, answer{result: unknown, err: errors.New("missing probe handler for default/web:app")},
		(&asker{}).ask(c))
}

// If the runtime could not execute a probe, the check retries it, unless the container is gone.
func TestAttempts(t *testing.T) {
	for code, want := range map[codes.Code]int{codes.Unavailable: attempts, codes.NotFound: 1} {
		t.Run(code.String(), func(t *testing.T) {
			asked := 0
			p := &asker{
				cri: execFunc(func(context.Context, *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
					asked++
					return nil, &cri.Error{Call: "ExecSync", Err: status.Error(code, "no answer")}
				}),
			}
			c := check{ctx: t.Context(), target: &target{id: "c1"},
				spec: &corev1.Probe{
					ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}}}
			c.container.Container = &corev1.Container{Name: "app"}
			if a := p.ask(c); a.err == nil || asked != want {
				t.Errorf("asked %d times, want %d; answer %v", asked, want, a)
			}
		})
	}
}
