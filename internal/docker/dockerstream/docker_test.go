package dockerstream

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	criremote "k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/utils/exec"

	"github.com/berth-run/berth/internal/base/eventually"
	"github.com/berth-run/berth/internal/base/looptest"
	"github.com/berth-run/berth/internal/docker/dockertest"
	"github.com/berth-run/berth/test/image"
)

const imageName = "berth.test/workload:1"

// pods has the network namespaces of containers, by ID.
type pods map[string]string

func (p pods) NetNS(_ context.Context, sandbox string) (string, error) {
	path, ok := p[sandbox]
	if !ok {
		return "", fmt.Errorf("no pod sandbox %s", sandbox)
	}
	return path, nil
}

// rig is a dockerd with one running container.
type rig struct {
	*Streams
	daemon    *dockertest.Daemon
	container string
	pods      pods
}

func TestDocker(t *testing.T) {
	archive, err := image.Build(t.Context(), t.TempDir(), imageName)
	if err != nil {
		t.Fatal(err)
	}
	d := dockertest.Start(t, archive)
	p := pods{}
	r := rig{New(d.Client(), p, slog.New(slog.DiscardHandler)), d, d.Run(t, imageName, []string{"sleep"}, nil), p}
	t.Run("ExecSync", func(t *testing.T) { testExecSync(t, r) })
	t.Run("ExecSync errors", func(t *testing.T) { testExecSyncErrors(t, r) })
	t.Run("ExecSync timeout", func(t *testing.T) { testTimeout(t, r) })
	t.Run("ExecSync output", func(t *testing.T) { testOutput(t, r) })
	t.Run("ExecSync children", func(t *testing.T) { testChildren(t, r) })
	t.Run("many", func(t *testing.T) { testMany(t, r) })
	t.Run("Exec", func(t *testing.T) { testExec(t, r) })
	t.Run("Exec over a terminal", func(t *testing.T) { testTerminal(t, r) })
	t.Run("Exec over SPDY", func(t *testing.T) { testServer(t, r) })
	t.Run("Exec without a client", func(t *testing.T) { testClientLeaves(t, r) })
	t.Run("Attach", func(t *testing.T) { testAttach(t, r) })
	t.Run("PortForward", func(t *testing.T) { testPortForward(t, r) })
}

func (r rig) sync(t testing.TB, timeout int64, cmd ...string) (*runtimeapi.ExecSyncResponse, error) {
	t.Helper()
	return r.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: r.container, Cmd: cmd, Timeout: timeout})
}

// processes lists the directories in /proc of the processes of the container whose command contains a text.
func (r rig) processes(t testing.TB, text string) (found []string) {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		cgroup, _ := os.ReadFile(dir + "/cgroup")
		command, _ := os.ReadFile(dir + "/cmdline")
		if bytes.Contains(cgroup, []byte(r.container)) && bytes.Contains(command, []byte(text)) {
			found = append(found, dir)
		}
	}
	return found
}

// hasTerminal waits until the terminal of a process has a size.
func (r rig) hasTerminal(t testing.TB, process string, want criremote.TerminalSize) {
	t.Helper()
	eventually.Nothing(t, func() string {
		terminal, err := os.OpenFile(process+"/fd/0", os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		got, err := unix.IoctlGetWinsize(int(terminal.Fd()), unix.TIOCGWINSZ)
		_ = terminal.Close()
		if err == nil && got.Row == want.Height && got.Col == want.Width {
			return ""
		}
		return fmt.Sprintf("size %+v, %v, want %+v", got, err, want)
	})
}

func testExecSync(t *testing.T, r rig) {
	got, err := r.sync(t, 0, "/workload", "print", "one", "then", "error", "two", "then", "exit", "3")
	if err != nil {
		t.Fatal(err)
	}
	if string(got.Stdout) != "one\n" || string(got.Stderr) != "two\n" || got.ExitCode != 3 {
		t.Errorf("%q, %q, exit code %d", got.Stdout, got.Stderr, got.ExitCode)
	}
	if got, err := r.sync(t, 10, "/workload", "true"); err != nil || got.ExitCode != 0 || len(got.Stdout) > 0 {
		t.Errorf("%v, %v", got, err)
	}
}

func testExecSyncErrors(t *testing.T, r rig) {
	if got, err := r.sync(t, 0, "/none"); err == nil || !strings.Contains(err.Error(), "/none") {
		t.Errorf("a program that does not exist: %v, %v", got, err)
	}
	_, err := r.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: "none", Cmd: []string{"/workload"}})
	if err == nil || !strings.Contains(err.Error(), "No such container: none") {
		t.Errorf("a container that does not exist: %v", err)
	}
	ended := r.daemon.Run(t, imageName, []string{"true"}, nil)
	r.daemon.Wait(t, ended)
	_, err = r.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: ended, Cmd: []string{"/workload"}})
	if err == nil || !strings.Contains(err.Error(), "is not running") {
		t.Errorf("a container that has ended: %v", err)
	}
}

// The command and its children are dead when ExecSync returns. So they are when its caller gives up.
func testTimeout(t *testing.T, r rig) {
	began := time.Now()
	_, err := r.sync(t, 1, "/workload", "fork", "3", "then", "stubborn", "marked-1")
	if status.Code(err) != codes.DeadlineExceeded || !strings.Contains(err.Error(), "timeout 1s exceeded") {
		t.Errorf("error %v", err)
	}
	if took := time.Since(began); took < time.Second || took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	r.gone(t, "marked-1")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := r.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: r.container,
			Cmd: []string{"/workload", "stubborn", "marked-2"}})
		done <- err
	}()
	r.appears(t, "marked-2")
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	r.gone(t, "marked-2")
	r.gone(t, "/proc/self/exe") // the children
}

func (r rig) appears(t testing.TB, text string) {
	t.Helper()
	r.until(t, text, func(n int) bool { return n > 0 })
}

func (r rig) gone(t testing.TB, text string) {
	t.Helper()
	r.until(t, text, func(n int) bool { return n == 0 })
}

func (r rig) until(t testing.TB, text string, ok func(n int) bool) {
	t.Helper()
	eventually.Nothing(t, func() string {
		found := r.processes(t, text)
		if ok(len(found)) {
			return ""
		}
		return fmt.Sprintf("processes with %s: %q", text, found)
	})
}

// Output beyond the limit is dropped, and the command runs to its end.
func testOutput(t *testing.T, r rig) {
	got, err := r.sync(t, 0, "/workload", "pour", "/dev/stdout", "20000000", "2000000000", "then", "exit", "7")
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Stdout) != maxOutput || got.ExitCode != 7 {
		t.Errorf("%d bytes, exit code %d", len(got.Stdout), got.ExitCode)
	}
}

// A command ends, and a child of it runs on.
func testChildren(t *testing.T, r rig) {
	got, err := r.sync(t, 30, "/workload", "print", "one", "then", "fork", "1", "then", "exit", "4")
	if err != nil || got.ExitCode != 4 || !strings.HasPrefix(string(got.Stdout), "one\n") {
		t.Errorf("%v, %v", got, err)
	}
}

var manyCommands = flag.Int("commands", 48, "how many commands the test of many commands runs")

// Many commands leave no goroutine, file or memory behind.
func testMany(t *testing.T, r rig) {
	const before = 8
	commands := *manyCommands
	run := func(n int) (goroutines, files int, heap uint64) {
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				for range n / 4 {
					if got, err := r.sync(t, 60, "/workload", "true"); err != nil || got.ExitCode != 0 {
						t.Errorf("%v, %v", got, err)
						return
					}
				}
			})
		}
		group.Wait()
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		open, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return runtime.NumGoroutine(), len(open), m.HeapInuse
	}
	goroutines, files, heap := run(before)
	moreGoroutines, moreFiles, moreHeap := run(commands)
	t.Logf("goroutines %d to %d, files %d to %d, heap %d to %d", goroutines, moreGoroutines, files, moreFiles, heap,
		moreHeap)
	if moreGoroutines > goroutines+20 || moreFiles > files+20 || moreHeap > heap+8<<20 {
		t.Error("commands leave something behind")
	}
}

// buffer is an output of a command in a test.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{}
}

func newBuffer() *buffer { return &buffer{more: make(chan struct{}, 1)} }

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case b.more <- struct{}{}:
	default:
	}
	return b.text.Write(p)
}

func (b *buffer) Close() error { return nil }

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// until waits until the output contains a text.
func (b *buffer) until(t testing.TB, text string) {
	t.Helper()
	timeout := time.After(20 * time.Second)
	for !strings.Contains(b.String(), text) {
		select {
		case <-b.more:
		case <-timeout:
			t.Fatalf("output %q, want %q", b.String(), text)
		}
	}
}

func testExec(t *testing.T, r rig) {
	out, failed := newBuffer(), newBuffer()
	err := r.Exec(t.Context(), r.container, []string{"/workload", "cat", "/dev/stdin", "then", "error", "two", "then",
		"exit", "5"}, strings.NewReader("input"), out, failed, false, nil)
	if e, ok := errors.AsType[exec.ExitError](err); !ok || e.ExitStatus() != 5 {
		t.Errorf("error %v", err)
	}
	if out.String() != "input" || failed.String() != "two\n" {
		t.Errorf("output %q, %q", out, failed)
	}
	if err := r.Exec(t.Context(), r.container, []string{"/workload", "true"}, nil, out, nil, false, nil); err != nil {
		t.Error(err)
	}
	out = newBuffer()
	err = r.Exec(t.Context(), r.container, []string{"/none"}, nil, out, nil, false, nil)
	e, ok := errors.AsType[exec.ExitError](err)
	if !ok || e.ExitStatus() < 126 || !strings.Contains(out.String(), "/none") {
		t.Errorf("a program that does not exist: %v, output %q", err, out)
	}
}

// A terminal gets its sizes and the keys Ctrl-P and Ctrl-Q. The end of the input reaches it as Ctrl-D.
func testTerminal(t *testing.T, r rig) {
	input, typed := io.Pipe()
	out := newBuffer()
	sizes := make(chan criremote.TerminalSize)
	done := make(chan error, 1)
	go func() {
		done <- r.Exec(t.Context(), r.container, []string{"/workload", "cat", "/dev/stdin"}, input, out, nil, true,
			sizes)
	}()
	for _, size := range []criremote.TerminalSize{{Width: 80, Height: 24}, {Width: 132, Height: 50}} {
		sizes <- size
	}
	if _, err := io.WriteString(typed, "one \x10\x11\n"); err != nil {
		t.Fatal(err)
	}
	out.until(t, "one")
	r.appears(t, "/dev/stdin") // the terminal itself has echoed the input
	running := r.processes(t, "/dev/stdin")
	if len(running) != 1 {
		t.Fatalf("processes %q", running)
	}
	r.hasTerminal(t, running[0], criremote.TerminalSize{Width: 132, Height: 50})
	_ = typed.Close()
	close(sizes)
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatalf("the command does not end, output %q", out)
	}
}

// testServer runs a command with the client of kubectl.
func testServer(t *testing.T, r rig) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewServer(r.Streams, listener)
	if err != nil {
		t.Fatal(err)
	}
	defer looptest.Start(t, s.Run, nil)()
	prepared, err := s.GetExec(&runtimeapi.ExecRequest{ContainerId: r.container,
		Stdin: true, Stdout: true, Stderr: true,
		Cmd: []string{"/workload", "cat", "/dev/stdin", "then", "exit", "6"}})
	if err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(prepared.Url)
	if err != nil {
		t.Fatal(err)
	}
	executor, err := remotecommand.NewSPDYExecutor(&rest.Config{}, http.MethodPost, at)
	if err != nil {
		t.Fatal(err)
	}
	var out, failed bytes.Buffer
	err = executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: strings.NewReader("input"),
		Stdout: &out, Stderr: &failed})
	if e, ok := errors.AsType[exec.ExitError](err); !ok || e.ExitStatus() != 6 || out.String() != "input" {
		t.Errorf("%v, output %q, %q", err, out.String(), failed.String())
	}
}

// closedOutput is the output of a client that has left.
type closedOutput struct{}

func (closedOutput) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
func (closedOutput) Close() error              { return nil }

// A command whose client has left: over a terminal it gets SIGHUP with its output, and without one it is killed with
// the end of the request.
func testClientLeaves(t *testing.T, r rig) {
	if err := r.Exec(t.Context(), r.container, []string{"/workload", "print", "x", "then", "sleep", "marked-3"}, nil,
		closedOutput{}, nil, true, nil); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("error %v", err)
	}
	r.gone(t, "marked-3")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- r.Exec(ctx, r.container, []string{"/workload", "stubborn", "marked-4"}, nil, newBuffer(), nil, false,
			nil)
	}()
	r.appears(t, "marked-4")
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	r.gone(t, "marked-4")
}

func testAttach(t *testing.T, r rig) {
	id := r.daemon.Run(t, imageName, []string{"cat", "/dev/stdin", "then", "error", "two", "then", "exit", "9"},
		func(c *container.Config, _ *container.HostConfig) { c.OpenStdin, c.StdinOnce = true, true })
	out, failed := newBuffer(), newBuffer()
	if err := r.Attach(t.Context(), id, strings.NewReader("input"), out, failed, false, nil); err != nil {
		t.Fatal(err)
	}
	if out.String() != "input" || failed.String() != "two\n" {
		t.Errorf("output %q, %q", out, failed)
	}
	if code := r.daemon.Wait(t, id); code != 9 {
		t.Errorf("exit code %d", code)
	}
	// A client that leaves does not end the container.
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- r.Attach(ctx, r.container, nil, newBuffer(), nil, false, nil) }()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if pid := r.daemon.PidOf(t, r.container); pid == 0 {
		t.Error("the container has ended")
	}
}

// side is one side of a connection in memory, as a client's stream.
type side struct {
	io.Reader
	io.WriteCloser
}

func testPortForward(t *testing.T, r rig) {
	for _, address := range []string{"127.0.0.1:8080", "[::1]:8081"} {
		id := r.daemon.Run(t, imageName, []string{"serve", address},
			func(_ *container.Config, h *container.HostConfig) {
				h.Sysctls = map[string]string{"net.ipv6.conf.all.disable_ipv6": "0"}
			})
		pid := r.daemon.PidOf(t, id)
		r.pods[id] = fmt.Sprintf("/proc/%d/ns/net", pid)
		_, text, _ := net.SplitHostPort(address)
		var port int32
		if _, err := fmt.Sscan(text, &port); err != nil {
			t.Fatal(err)
		}
		var answer string
		deadline := time.Now().Add(20 * time.Second)
		for {
			in, request := io.Pipe()
			out := newBuffer()
			done := make(chan error, 1)
			go func() { done <- r.PortForward(t.Context(), id, port, side{in, out}) }()
			go func() {
				_, _ = io.WriteString(request, "GET /healthz HTTP/1.0\r\n\r\n")
				_ = request.Close()
			}()
			err := <-done
			_ = in.Close()
			if answer = out.String(); err == nil {
				break
			}
			if time.Now().After(deadline) || !strings.Contains(err.Error(), "connection refused") {
				t.Fatalf("%s: %v", address, err)
			}
			time.Sleep(10 * time.Millisecond) // the server starts
		}
		if !strings.HasPrefix(answer, "HTTP/1.0 200") {
			t.Errorf("%s: %q", address, answer)
		}
	}
	for port, want := range map[int32]string{0: "not a port", 70000: "not a port"} {
		err := r.PortForward(t.Context(), r.container, port, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("port %d: %v", port, err)
		}
	}
	if err := r.PortForward(t.Context(), "none", 80, nil); err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("a sandbox that does not exist: %v", err)
	}
}
