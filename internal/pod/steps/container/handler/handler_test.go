package handler

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/record/event"
)

// eventLog collects events.
type eventLog []string

func (s *eventLog) Event(_ corev1.ObjectReference, kind, reason, format string, args ...any) {
	*s = append(*s, kind+" "+reason+": "+fmt.Sprintf(format, args...))
}

// execs answers ExecSync calls.
type execs struct {
	req  *runtimeapi.ExecSyncRequest
	resp *runtimeapi.ExecSyncResponse
	err  error
}

func (e *execs) ExecSync(_ context.Context, req *runtimeapi.ExecSyncRequest,
	_ ...grpc.CallOption) (*runtimeapi.ExecSyncResponse, error) {
	e.req = req
	return e.resp, e.err
}

// handlerOf returns a handler of container app of a pod at 127.0.0.1.
func handlerOf(runtime execer, events event.Sink) call {
	p := &corev1.Pod{}
	p.Name, p.Namespace = "web", "default"
	return call{New(runtime, events), Target{Pod: p, ID: "c1", IPs: []string{"127.0.0.1"},
		Container: pod.Container{Container: &corev1.Container{Name: "app"}}}}
}

func TestExecHandler(t *testing.T) {
	long := strings.Repeat("x", 5000)
	cases := []struct {
		resp *runtimeapi.ExecSyncResponse
		err  error
		want string
	}{
		{resp: &runtimeapi.ExecSyncResponse{}},
		{resp: &runtimeapi.ExecSyncResponse{ExitCode: 2, Stdout: []byte("out\n"), Stderr: []byte("err\n")},
			want: `Exec lifecycle hook ([/bin/x -v]) for Container "app" in Pod "default/web" failed - error: ` +
				`command exited with 2, message: "out\nerr"`},
		{resp: &runtimeapi.ExecSyncResponse{ExitCode: 1, Stdout: []byte(long)},
			want: `Exec lifecycle hook ([/bin/x -v]) for Container "app" in Pod "default/web" failed - error: ` +
				`command exited with 1, message: "` + long[:maxOutput] + `"`},
		{err: errors.New("gone"),
			want: `Exec lifecycle hook ([/bin/x -v]) for Container "app" in Pod "default/web" failed - error: gone`},
	}
	for _, c := range cases {
		e := &execs{resp: c.resp, err: c.err}
		h := handlerOf(e, nil)
		h.Timeout = 2500 * time.Millisecond
		err := h.run(t.Context(), "preStop",
			&corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"/bin/x", "-v"}}})
		if got := fmt.Sprint(err); c.want != "" && got != c.want || c.want == "" && err != nil {
			t.Errorf("got %s\nwant %s", got, c.want)
		}
		if e.req.ContainerId != "c1" || e.req.Timeout != 3 {
			t.Errorf("asked for %v", e.req)
		}
	}
}

// port returns the port that a test server listens on.
func port(t *testing.T, address string) intstr.IntOrString {
	t.Helper()
	_, text, err := net.SplitHostPort(strings.TrimPrefix(strings.TrimPrefix(address, "https://"), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return intstr.FromInt(n)
}

func TestHTTPHandler(t *testing.T) {
	var got []string
	serve := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got,
			fmt.Sprintf("%s %s %s %q %v %q", r.Host, r.URL, r.UserAgent(), r.Header["Accept"], r.Header["X"],
				r.Header.Get("Authorization")))
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, "http://elsewhere.invalid/", http.StatusFound)
		case "/here":
			http.Redirect(w, r, "/end", http.StatusFound)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		case "/broken":
			w.WriteHeader(http.StatusInternalServerError)
		case "/endless":
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 1<<16)); err != nil {
					return
				}
			}
		}
	})
	plain := httptest.NewServer(serve)
	defer plain.Close()
	secure := httptest.NewUnstartedServer(serve)
	secure.TLS = &tls.Config{}
	secure.StartTLS()
	defer secure.Close()

	header := func(name, value string) corev1.HTTPHeader { return corev1.HTTPHeader{Name: name, Value: value} }
	standard := ` kube-lifecycle/1.36 ["*/*"] [] ""`
	cases := []struct {
		name   string
		get    corev1.HTTPGetAction
		got    []string // requests, HOST for host and port
		fails  string
		events []string
	}{
		{name: "plain", get: corev1.HTTPGetAction{Path: "/a?b=c", Port: port(t, plain.URL)},
			got: []string{"HOST /a?b=c" + standard}},
		{name: "any answer will do", get: corev1.HTTPGetAction{Path: "/broken", Port: port(t, plain.URL)},
			got: []string{"HOST /broken" + standard}},
		{name: "headers", got: []string{`example.com / me [] [1 2] ""`},
			get: corev1.HTTPGetAction{Path: "/", Port: port(t, plain.URL), HTTPHeaders: []corev1.HTTPHeader{
				header("Host", "example.com"), header("User-Agent", "me"), header("Accept", ""), header("X", "1"),
				header("X", "2")}}},
		{name: "TLS", get: corev1.HTTPGetAction{Path: "/t", Scheme: "HTTPS", Port: port(t, secure.URL)},
			got: []string{"HOST /t" + standard}},
		{name: "fallback", got: []string{"HOST /f" + standard},
			get: corev1.HTTPGetAction{Path: "/f", Scheme: "HTTPS", Port: port(t, plain.URL),
				HTTPHeaders: []corev1.HTTPHeader{header("Authorization", "secret")}},
			events: []string{
				"Warning LifecycleHTTPFallback: request to HTTPS lifecycle hook HOST got HTTP response, retry with " +
					"HTTP succeeded"}},
		{name: "redirect", get: corev1.HTTPGetAction{Path: "/here", Port: port(t, plain.URL)},
			got: []string{"HOST /here" + standard, "HOST /end" + standard}},
		{name: "redirect away", get: corev1.HTTPGetAction{Path: "/away", Port: port(t, plain.URL)},
			got: []string{"HOST /away" + standard}},
		{name: "endless", get: corev1.HTTPGetAction{Path: "/endless", Port: port(t, plain.URL)},
			got: []string{"HOST /endless" + standard}},
		{name: "no such port", get: corev1.HTTPGetAction{Path: "/", Port: intstr.FromString("nope")},
			fails: `HTTP lifecycle hook (/) for Container "app" in Pod "default/web" failed - error: port "nope" is ` +
				`neither a number nor the name of a port of the container`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got = nil
			var said eventLog
			h := handlerOf(nil, &said)
			host := "127.0.0.1:" + c.get.Port.String()
			err := h.run(t.Context(), "postStart", &corev1.LifecycleHandler{HTTPGet: &c.get})
			if c.fails == "" && err != nil || c.fails != "" && (err == nil || err.Error() != c.fails) {
				t.Errorf("error %v, want %q", err, c.fails)
			}
			for i := range c.got {
				c.got[i] = strings.Replace(c.got[i], "HOST", host, 1)
			}
			for i := range c.events {
				c.events[i] = strings.Replace(c.events[i], "HOST", host, 1)
			}
			if diff := cmp.Diff(c.got, got); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(c.events, []string(said)); diff != "" {
				t.Error(diff)
			}
			if got := testutil.ToFloat64(h.fallbacks); got != float64(len(c.events)) {
				t.Errorf("%v fallbacks for %d events", got, len(c.events))
			}
		})
	}

	got = nil
	err := handlerOf(nil, nil).run(t.Context(), "postStart",
		&corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/loop", Port: port(t, plain.URL)}})
	if err == nil || !strings.Contains(err.Error(), "stopped after 10 redirects") || len(got) != maxRedirects {
		t.Errorf("%v after %d requests", err, len(got))
	}
}

func TestTCPHandler(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := port(t, l.Addr().String())
	h := handlerOf(nil, nil)
	h.Container.Ports = []corev1.ContainerPort{{Name: "admin", ContainerPort: int32(at.IntValue())}}
	for _, p := range []intstr.IntOrString{at, intstr.FromString("admin"), intstr.FromString(at.String())} {
		if err := h.run(t.Context(), "preStop",
			&corev1.LifecycleHandler{TCPSocket: &corev1.TCPSocketAction{Port: p}}); err != nil {
			t.Error(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := h.run(t.Context(), "preStop",
		&corev1.LifecycleHandler{TCPSocket: &corev1.TCPSocketAction{Host: "127.0.0.1", Port: at}}); err == nil {
		t.Error("the handler succeeded although no server listens")
	}
	h.IPs = nil
	err = h.run(t.Context(), "preStop", &corev1.LifecycleHandler{TCPSocket: &corev1.TCPSocketAction{Port: at}})
	if err == nil || !strings.Contains(err.Error(), "the pod has no address") {
		t.Error(err)
	}
}

func TestSleepAndNoHandler(t *testing.T) {
	h := handlerOf(nil, nil)
	if err := h.run(t.Context(), "preStop", &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{}}); err != nil {
		t.Errorf("sleep of 0 s: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	err := h.run(ended, "preStop", &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 60}})
	if want := `Sleep lifecycle hook (60) for Container "app" in Pod "default/web" failed - error: container ` +
		`terminated before sleep hook finished`; err == nil || err.Error() != want {
		t.Error(err)
	}
	if got := testutil.ToFloat64(h.interrupted); got != 1 {
		t.Errorf("%v sleeps were cut short, want 1", got)
	}
	if err := h.run(t.Context(), "preStop", &corev1.LifecycleHandler{}); err == nil ||
		!strings.Contains(err.Error(), "it has no handler") {
		t.Error(err)
	}
}
