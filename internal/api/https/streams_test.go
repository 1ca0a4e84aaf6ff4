package https

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	utilexec "k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/berth-run/berth/internal/api/servertest"
)

// client returns a client-go configuration for a node's server.
func (n *node) client() *rest.Config {
	return &rest.Config{Host: n.url, BearerToken: "admin", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
}

// executors returns client-go's executors by protocol, SPDY and WebSocket.
func (n *node) executors(t *testing.T, path string) map[string]remotecommand.Executor {
	t.Helper()
	u := must(url.Parse(n.url + path))
	return map[string]remotecommand.Executor{
		"SPDY":         must(remotecommand.NewSPDYExecutor(n.client(), "POST", u)),
		"WebSocket v5": must(remotecommand.NewWebSocketExecutor(n.client(), "GET", u.String())),
		"WebSocket v4": must(remotecommand.NewWebSocketExecutorForProtocols(n.client(), "GET", u.String(),
			"v4.channel.k8s.io")),
	}
}

func TestExec(t *testing.T) {
	n := start(t, nil)
	n.running("web", "app")
	for name, e := range n.executors(t, "/exec/default/web/app?command=echo&command=a&command=b&output=1&error=1") {
		var out bytes.Buffer
		if err := e.StreamWithContext(t.Context(),
			remotecommand.StreamOptions{Stdout: &out, Stderr: io.Discard}); err != nil || out.String() != "a\nb\n" {
			t.Errorf("%s: echo: %q, %v", name, &out, err)
		}
	}
	for name, e := range n.executors(t, "/exec/default/web/uid-1/app?command=fail&command=7&output=1&error=1") {
		var stderr bytes.Buffer
		err := e.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: io.Discard, Stderr: &stderr})
		var exit utilexec.CodeExitError
		if !errors.As(err, &exit) || exit.Code != 7 || stderr.String() != "failed\n" {
			t.Errorf("%s: fail: %q, %v", name, &stderr, err)
		}
	}
	for name, e := range n.executors(t, "/exec/default/web/app?command=cat&input=1&output=1") {
		if name == "WebSocket v4" {
			continue // this protocol cannot close stdin
		}
		var out bytes.Buffer
		if err := e.StreamWithContext(t.Context(),
			remotecommand.StreamOptions{Stdin: strings.NewReader("typed"), Stdout: &out}); err != nil ||
			out.String() != "typed" {
			t.Errorf("%s: cat: %q, %v", name, &out, err)
		}
	}
	for name, e := range n.executors(t, "/exec/default/web/app?command=size&output=1&tty=1") {
		var out bytes.Buffer
		sizes := make(sizes, 1)
		sizes <- remotecommand.TerminalSize{Width: 80, Height: 25}
		if err := e.StreamWithContext(t.Context(),
			remotecommand.StreamOptions{Stdout: &out, Tty: true, TerminalSizeQueue: sizes}); err != nil ||
			out.String() != "80x25\n" {
			t.Errorf("%s: size: %q, %v", name, &out, err)
		}
		close(sizes)
	}
}

type sizes chan remotecommand.TerminalSize

func (s sizes) Next() *remotecommand.TerminalSize {
	size, ok := <-s
	if !ok {
		return nil
	}
	return &size
}

func TestStreamErrors(t *testing.T) {
	n := start(t, nil)
	n.running("web", "app")
	n.agent.Put(servertest.Pod("late", "app"))
	for path, want := range map[string]string{
		"/exec/default/web/app?command=x":             "you must specify at least 1 of stdin, stdout, stderr",
		"/exec/default/web/app?output=1":              "no command to run",
		"/exec/default/late/app?output=1&command=x":   `container "app" of pod default/late is not running`,
		"/attach/default/none/app?output=1":           `pods "default/none" not found`,
		"/attach/default/web/uid-7/app?output=1":      `pods "default/web" not found`,
		"/attach/default/web/sidecar?output=1":        `container "sidecar" not found in pod "web"`,
		"/exec/default/web/app?output=1&command=echo": "Upgrade request required",
		"/portForward/default/none":                   `pods "default/none" not found`,
	} {
		if _, body := n.ask(t, "admin", "POST", path, ""); strings.TrimSpace(body) != want {
			t.Errorf("%s: %q, want %q", path, body, want)
		}
	}
}

// A stream ends without leaks in three cases: its client is gone, it was idle for too long, or the agent
// ends.
func TestStreamsEnd(t *testing.T) {
	for name, end := range map[string]func(n *node, cancel func()){
		"client": func(_ *node, cancel func()) { cancel() },
		"agent": func(n *node, _ func()) {
			if err := n.stop(); err != nil {
				panic(err)
			}
		},
		"idle": func(*node, func()) {},
	} {
		t.Run(name, func(t *testing.T) {
			n := start(t, func(o *Options) {
				if name == "idle" {
					o.StreamIdle = 300 * time.Millisecond
				}
			})
			n.running("web", "app")
			for how, e := range n.executors(t, "/attach/default/web/app?input=1&output=1") {
				ctx, cancel := context.WithCancel(t.Context())
				in, typed := io.Pipe()
				shown, out := io.Pipe()
				ended := make(chan error, 1)
				go func() { ended <- e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: in, Stdout: out}) }()
				if _, err := io.WriteString(typed, "hello\n"); err != nil {
					t.Fatal(err)
				}
				if line, err := bufio.NewReader(shown).ReadString('\n'); err != nil || line != "hello\n" {
					t.Fatalf("%s: %q, %v", how, line, err)
				}
				end(n, cancel)
				select {
				case err := <-ended:
					t.Logf("%s: the stream has ended: %v", how, err)
				case <-time.After(10 * time.Second):
					t.Fatalf("%s: the stream goes on", how)
				}
				<-n.active.Idle()
				cancel()
				_ = errors.Join(typed.Close(), shown.Close())
				if name == "agent" {
					break // the agent can only end once
				}
			}
		})
	}
}

func TestPortForward(t *testing.T) {
	n := start(t, nil)
	n.running("web", "app")
	u := must(url.Parse(n.url + "/portForward/default/web"))
	transport, upgrader, err := spdy.RoundTripperFor(n.client())
	if err != nil {
		t.Fatal(err)
	}
	for name, dialer := range map[string]httpstream.Dialer{
		"SPDY":      spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, "POST", u),
		"WebSocket": must(portforward.NewSPDYOverWebsocketDialerForStreaming(u, n.client())),
	} {
		stop, ready, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		f := must(portforward.NewForStreaming(dialer, []string{"0:8080"}, stop, ready, io.Discard, io.Discard))
		go func() { ended <- f.ForwardPorts() }()
		select {
		case <-ready:
		case err := <-ended:
			t.Fatalf("%s: %v", name, err)
		}
		c := must(net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", must(f.GetPorts())[0].Local)))
		line := must(bufio.NewReader(c).ReadString('\n'))
		c.Close()
		if line != "port 8080\n" {
			t.Errorf("%s: %q", name, line)
		}
		close(stop)
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	<-n.active.Idle()
}

func TestLogs(t *testing.T) {
	n := start(t, nil)
	p := n.running("web", "app")
	n.agent.WriteLog(t, p, "app", 0, "one", "two", "three")
	for query, want := range map[string]string{
		"":                            "one\ntwo\nthree\n",
		"tailLines=1":                 "three\n",
		"tail=2":                      "two\nthree\n",
		"tail=all":                    "one\ntwo\nthree\n",
		"limitBytes=5":                "one\nt",
		"sinceSeconds=1":              "",
		"stream=Stderr":               "",
		"timestamps=true&tailLines=1": "2026-03-01T12:00:00.000000001Z three\n",
		"sinceTime=2026-03-01T12:00:00Z&tailLines=1": "three\n",
		"previous=true": "previous terminated container \"app\" in pod \"web\" not found\n",
	} {
		if _, body := n.ask(t, "admin", "GET", "/containerLogs/default/web/app?"+query, ""); body != want {
			t.Errorf("%s: %q, want %q", query, body, want)
		}
	}
}

// With PodLogsQuerySplitStreams: false the parameter stream is ignored, as by a kubelet.
func TestLogsWithoutStreams(t *testing.T) {
	n := start(t, func(o *Options) { o.Enabled.LogStreams = false })
	n.agent.WriteLog(t, n.running("web", "app"), "app", 0, "one")
	for _, query := range []string{"stream=Stderr", "stream=Nonsense", ""} {
		if _, body := n.ask(t, "admin", "GET", "/containerLogs/default/web/app?"+query, ""); body != "one\n" {
			t.Errorf("%s: %q", query, body)
		}
	}
}

// With ExtendWebSocketsToKubelet: false a WebSocket with a protocol that only this server translates is refused.
// Clients then use SPDY.
func TestPortForwardWithoutWebSockets(t *testing.T) {
	n := start(t, func(o *Options) { o.Enabled.WebSockets = false })
	n.running("web", "app")
	u := must(url.Parse(n.url + "/portForward/default/web"))
	dialer := must(portforward.NewSPDYOverWebsocketDialerForStreaming(u, n.client()))
	if c, _, err := dialer.Dial("portforward.k8s.io"); err == nil {
		_ = c.Close()
		t.Error("the server translated a WebSocket")
	}
	transport, upgrader, err := spdy.RoundTripperFor(n.client())
	if err != nil {
		t.Fatal(err)
	}
	c, _, err := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, "POST", u).Dial(
		"portforward.k8s.io")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	<-n.active.Idle()
}

// A followed log delivers new lines at once and ends with its container. It leaves nothing behind when its
// reader goes.
func TestFollowedLog(t *testing.T) {
	n := start(t, nil)
	p := n.running("web", "app")
	n.agent.WriteLog(t, p, "app", 0, "first")
	follow := func(ctx context.Context) (*bufio.Reader, io.Closer) {
		t.Helper()
		r := must(http.NewRequestWithContext(ctx, http.MethodGet, n.url+"/containerLogs/default/web/app?follow=true",
			nil))
		answer := must(roundTripper{"admin", n.web.Transport}.RoundTrip(r)) //nolint:bodyclose // the caller does
		return bufio.NewReader(answer.Body), answer.Body
	}
	ctx, cancel := context.WithCancel(t.Context())
	lines, body := follow(ctx)
	for _, want := range []string{"first\n", "second\n"} {
		if line, err := lines.ReadString('\n'); err != nil || line != want {
			t.Fatalf("%q, %v, want %q", line, err, want)
		}
		if want == "first\n" {
			n.agent.WriteLog(t, p, "app", 0, "second")
		}
	}
	cancel()
	body.Close()
	<-n.active.Idle()

	lines, body = follow(t.Context())
	defer body.Close()
	must(lines.ReadString('\n'))
	n.agent.Change(types.NamespacedName{Namespace: p.Namespace, Name: p.Name}, func(p *corev1.Pod) {
		servertest.Terminate(p, 0)
	})
	if rest, err := io.ReadAll(lines); err != nil || string(rest) != "second\n" {
		t.Errorf("the end of a log: %q, %v", rest, err)
	}
}

// Log followers leave no goroutine after their clients are gone.
func TestLogFollowersLeaveNoGoroutine(t *testing.T) {
	n := start(t, nil)
	p := n.running("web", "app")
	n.agent.WriteLog(t, p, "app", 0, "first")
	before := 0
	for i := range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		r := must(http.NewRequestWithContext(ctx, http.MethodGet, n.url+"/containerLogs/default/web/app?follow=true",
			nil))
		answer := must(
			roundTripper{"admin", n.web.Transport}.RoundTrip(r)) //nolint:bodyclose // it ends with its context
		must(answer.Body.Read(make([]byte, 1)))
		cancel()
		answer.Body.Close()
		<-n.active.Idle()
		if i == 0 {
			before = runtime.NumGoroutine()
		}
	}
	for range 100 {
		if runtime.NumGoroutine() <= before+5 {
			return
		}
		runtime.Gosched()
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d goroutines, %d after the first", runtime.NumGoroutine(), before)
}
