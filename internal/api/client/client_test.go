package client_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/api/servertest"
)

var web = types.NamespacedName{Namespace: "default", Name: "web"}

func running(a *servertest.Agent) *corev1.Pod {
	p := servertest.Pod("web", "app")
	servertest.Run(p)
	return a.Put(p)
}

// listen serves a handler of the test on a socket.
func listen(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "berth")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: h}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	return path
}

func TestConnectErrorsNameNextStep(t *testing.T) {
	dir := t.TempDir()
	dead := filepath.Join(dir, "dead")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: dead, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	const start = `start one with "berth agent", or run the pods in the foreground with "berth run"`
	aborted := listen(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	for name, tt := range map[string]struct {
		socket, err, next string
		is                error
	}{
		"nothing there": {filepath.Join(dir, "none"), ": no agent runs on this root", start, client.ErrNoAgent},
		"left behind":   {dead, ": no agent runs on this root", start, client.ErrNoAgent},
		"dies":          {aborted, ": connection closed: EOF", "see the agent's log for why it ended", nil},
	} {
		err := client.New(tt.socket).Healthy(t.Context())
		if want := "connect to the agent at " + tt.socket + tt.err; err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
		if got := client.NextStep(err); got != tt.next {
			t.Errorf("%s: next %q", name, got)
		}
		if tt.is != nil && !errors.Is(err, tt.is) {
			t.Errorf("%s: is not %v", name, tt.is)
		}
	}
}

// An agent that was stopped with SIGSTOP accepts connections and answers nothing.
func TestAgentThatAnswersNothingEndsRequests(t *testing.T) {
	silent := filepath.Join(t.TempDir(), "silent")
	l, err := net.Listen("unix", silent) // connections wait for an Accept that never comes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	c := client.Within(client.New(silent), 100*time.Millisecond)
	_, streamErr := c.Open(t.Context(), "/berth/v1/history", nil) //nolint:bodyclose // there is no answer
	for name, err := range map[string]error{"request": c.Healthy(t.Context()), "stream": streamErr} {
		want := "ask the agent at " + silent + ": no answer within 100ms"
		if err == nil || err.Error() != want || !strings.Contains(client.NextStep(err), "--request-timeout") {
			t.Errorf("%s: %v -> %s, want %s", name, err, client.NextStep(err), want)
		}
	}
}

// A request may take longer than the limit while the agent answers other requests.
func TestRequestThatTakesLongHasNoLimit(t *testing.T) {
	asked := make(chan struct{})
	path := listen(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			asked <- struct{}{}
			return
		}
		for range 3 {
			<-asked
		}
	})
	if err := client.Within(client.New(path), 2*time.Second).Healthy(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestPermissionDeniedNamesNextStep(t *testing.T) {
	err := client.Explain("/run/berth/berth.sock",
		&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", fs.ErrPermission)})
	if want := "connect to the agent at /run/berth/berth.sock: permission denied"; err.Error() != want ||
		client.NextStep(err) != "run this command as root" {
		t.Errorf("%v -> %s", err, client.NextStep(err))
	}
}

func TestResponseOfAnotherServer(t *testing.T) {
	path := listen(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "teapot", http.StatusTeapot) })
	if err := client.New(path).Healthy(t.Context()); err == nil ||
		err.Error() != "agent answered 418 I'm a teapot: teapot" {
		t.Errorf("%v", err)
	}
	path = listen(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) })
	if _, err := client.New(path).Pods(t.Context(), client.Select{}); err == nil ||
		!strings.HasPrefix(err.Error(), "read the agent's answer to GET /api/v1/pods: ") {
		t.Errorf("%v", err)
	}
}

func TestErrorsKeepTheirReason(t *testing.T) {
	a := servertest.Start(t)
	_, err := client.New(a.Socket).Pod(web).Get(t.Context())
	if !apierrors.IsNotFound(err) || client.NextStep(err) == "" {
		t.Errorf("%v -> %s", err, client.NextStep(err))
	}
}

func TestWatchEndsWithItsContext(t *testing.T) {
	a := servertest.Start(t)
	running(a)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seen := 0
	for c, err := range client.New(a.Socket).WatchPods(ctx, client.Select{Namespace: "default"}) {
		if err != nil || c.Object.Name != "web" {
			t.Fatalf("%v %v", c, err)
		}
		seen++
		cancel()
		break
	}
	for c, err := range client.New(a.Socket).WatchPods(ctx, client.Select{}) {
		t.Errorf("after the end of ctx: %v %v", c, err)
	}
	if seen != 1 {
		t.Errorf("saw %d changes", seen)
	}
}

func TestLogsReportsTrailerError(t *testing.T) {
	path := listen(t, func(w http.ResponseWriter, _ *http.Request) {
		_, err := w.Write([]byte("one\n"))
		if err = errors.Join(err, http.NewResponseController(w).Flush()); err != nil {
			t.Error(err)
		}
		w.Header().Set(http.TrailerPrefix+"Berth-Error", "disk is gone")
	})
	var out bytes.Buffer
	opts := client.LogOptions{PodLogOptions: corev1.PodLogOptions{Container: "app"}}
	err := client.New(path).Pod(web).Logs(t.Context(), opts, &out)
	if out.String() != "one\n" || err == nil ||
		err.Error() != `read log of container "app" of pod default/web: disk is gone` {
		t.Errorf("%q, %v", out.String(), err)
	}
}

func TestDelete(t *testing.T) {
	a := servertest.Start(t)
	p := running(a)
	grace := 3 * time.Second
	if _, err := client.New(a.Socket).Pod(web).Delete(t.Context(), "other", nil); !apierrors.IsConflict(err) {
		t.Errorf("another UID: %v", err)
	}
	if _, err := client.New(a.Socket).Pod(web).Delete(t.Context(), p.UID, &grace); err != nil {
		t.Error(err)
	}
	if d := a.Deleted(); len(d) != 1 || *d[0].Grace != grace {
		t.Errorf("deleted: %v", d)
	}
}

// oneSize is a terminal that reports its size once and never changes it.
type oneSize chan *remotecommand.TerminalSize

func (s oneSize) Next() *remotecommand.TerminalSize { return <-s }

func TestExec(t *testing.T) {
	a := servertest.Start(t)
	running(a)
	run := func(tty bool, s client.Streams, command ...string) (string, string, error) {
		var out, stderr bytes.Buffer
		s.Out, s.Err = &out, &stderr
		err := client.New(a.Socket).Pod(web).Container("app").Exec(t.Context(), command, tty, s)
		return out.String(), stderr.String(), err
	}
	if out, _, err := run(false, client.Streams{}, "echo", "one two", "three"); out != "one two\nthree\n" ||
		err != nil {
		t.Errorf("echo: %q, %v", out, err)
	}
	if out, _, err := run(false, client.Streams{In: strings.NewReader("input")}, "cat"); out != "input" || err != nil {
		t.Errorf("cat: %q, %v", out, err)
	}
	_, stderr, err := run(false, client.Streams{}, "fail", "42")
	if exit, ok := errors.AsType[*client.ExitError](err); !ok || exit.Code != 42 || stderr != "failed\n" {
		t.Errorf("fail: %q, %v", stderr, err)
	}
	sizes := make(oneSize, 2)
	sizes <- &remotecommand.TerminalSize{Width: 80, Height: 24}
	close(sizes)
	if out, _, err := run(true, client.Streams{In: strings.NewReader(""), Sizes: sizes}, "size"); out != "80x24\n" ||
		err != nil {
		t.Errorf("size: %q, %v", out, err)
	}
	if _, _, err := run(false, client.Streams{}, "nothing"); err == nil ||
		!strings.HasPrefix(err.Error(), "run command in pod default/web: ") {
		t.Errorf("a command that cannot run: %v", err)
	}
}

func TestAttach(t *testing.T) {
	a := servertest.Start(t)
	running(a)
	attach := func(tty bool, s client.Streams) (string, error) {
		var out bytes.Buffer
		s.Out, s.Err = &out, io.Discard
		err := client.New(a.Socket).Pod(web).Container("app").Attach(t.Context(), tty, false, s)
		return out.String(), err
	}
	if _, err := attach(false, client.Streams{In: strings.NewReader("")}); err == nil ||
		!strings.Contains(err.Error(), "has no standard input") {
		t.Errorf("a container without input: %v", err)
	}
	a.Change(web, func(p *corev1.Pod) { p.Spec.Containers[0].Stdin = true })
	if out, err := attach(false, client.Streams{In: strings.NewReader("input")}); out != "input" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
	a.Change(web, func(p *corev1.Pod) { p.Spec.Containers[0].TTY = true })
	sizes := make(oneSize, 2)
	sizes <- &remotecommand.TerminalSize{Width: 100, Height: 30}
	close(sizes)
	if out, err := attach(true, client.Streams{In: strings.NewReader("input"), Sizes: sizes}); out != "100x30\ninput" ||
		err != nil {
		t.Errorf("terminal: %q, %v", out, err)
	}
}

// A runtime may go on although the input has ended. If the container's own input stays open, the client ends then.
func TestAttachEndsWithItsInput(t *testing.T) {
	a := servertest.Start(t)
	p := servertest.Pod("web", "endless")
	p.Spec.Containers[0].Stdin = true
	servertest.Run(p)
	a.Put(p)
	c := client.New(a.Socket).Pod(web).Container("endless")
	r, out := io.Pipe()
	echoed := make(chan string, 1)
	go func() {
		b := make([]byte, len("input"))
		_, _ = io.ReadFull(r, b) // what is missing shows in b
		echoed <- string(b)
	}()
	in := strings.NewReader("input")
	err := c.Attach(t.Context(), false, true, client.Streams{In: in, Out: out, Err: io.Discard})
	_ = out.Close()
	if got := <-echoed; got != "input" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	for name, attach := range map[string]struct {
		detach bool
		in     string
	}{
		"without detach":               {false, "input"},
		"more input than a pipe takes": {true, strings.Repeat("x", 1<<20)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
			defer cancel()
			in := strings.NewReader(attach.in)
			err := c.Attach(ctx, false, attach.detach, client.Streams{In: in, Out: io.Discard, Err: io.Discard})
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("ended with %v", err)
			}
		})
	}
}

func TestPortForward(t *testing.T) {
	a := servertest.Start(t)
	running(a)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, writer := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- client.New(a.Socket).Pod(web).PortForward(ctx,
			client.Forward{Addresses: []string{"127.0.0.1"}, Ports: []string{"0:8080"}, Out: writer, Err: io.Discard})
		_ = writer.Close()
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err, <-ended)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }() // discard the messages about connections
	var address string
	if _, err := fmt.Sscanf(line, "Forwarding from %s -> 8080\n", &address); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	for range 2 {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, "ping\n"); err != nil {
			t.Fatal(err)
		}
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if answer, err := io.ReadAll(conn); string(answer) != "port 8080\nping\n" || err != nil {
			t.Errorf("%q, %v", answer, err)
		}
		conn.Close()
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	none := client.New(a.Socket).Pod(types.NamespacedName{Namespace: "default", Name: "none"})
	if err := none.PortForward(t.Context(), client.Forward{}); err == nil ||
		!strings.Contains(err.Error(), "not found") {
		t.Errorf("no pod: %v", err)
	}
}
