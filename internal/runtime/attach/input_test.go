package attach

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/containerd/v2/core/runtime"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"github.com/berth-run/berth/internal/base/eventually"
)

// talker is a container with standard input. It implements Containers, Tasks and runtime.Task.
type talker struct {
	runtime.Task
	paths   [3]string
	info    string
	resized func(runtime.ConsoleSize)
	closed  chan struct{} // closed by CloseIO
}

func newTalker(t *testing.T, info string) *talker {
	t.Helper()
	c := &talker{info: info, closed: make(chan struct{})}
	for i := range c.paths {
		c.paths[i], _ = makeOutput(t)
	}
	return c
}

func (c *talker) ContainerStatus(context.Context,
	*runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	return &runtimeapi.ContainerStatusResponse{Info: map[string]string{"info": c.info}}, nil
}

func (c *talker) Pipes(context.Context, string) ([3]string, bool) { return c.paths, true }

func (c *talker) Get(context.Context, string) (runtime.Task, error) { return c, nil }

func (c *talker) Wait(ctx context.Context) (*runtime.Exit, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (c *talker) ResizePty(_ context.Context, size runtime.ConsoleSize) error {
	c.resized(size)
	return nil
}

func (c *talker) CloseIO(context.Context) error {
	close(c.closed)
	return nil
}

// readFunc is an input.
type readFunc func(p []byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

// The output that an input or a new size leads to must reach the client. So both come after the output is connected.
func TestOutputComesFirst(t *testing.T) {
	c := newTalker(t, "{}")
	s := New(c, c, "")
	resized := make(chan bool, 1)
	c.resized = func(runtime.ConsoleSize) { resized <- isOpen(s) }
	sizes := make(chan remotecommand.TerminalSize, 2)
	sizes <- remotecommand.TerminalSize{}
	sizes <- remotecommand.TerminalSize{Width: 80, Height: 24}
	_, output := io.Pipe()
	var connected bool
	err := s.Attach(t.Context(), "c", readFunc(func([]byte) (int, error) {
		connected = <-resized && isOpen(s)
		return 0, io.EOF
	}), output, nil, true, sizes)
	if err != nil || !connected {
		t.Errorf("the output is connected before the input and the size: %t, %v", connected, err)
	}
	if isOpen(s) || len(s.inputs) > 0 {
		t.Error("streams are open after the client has left")
	}
}

// The input of a container ends with its first client (stdinOnce), for all its clients. They stay for the output.
func TestInputEndsOnce(t *testing.T) {
	c := newTalker(t, `{"config": {"stdin_once": true}}`)
	s := New(c, c, "")
	ctx, end := context.WithCancel(t.Context())
	defer end()
	attach := func(input io.Reader) (output *io.PipeReader, left <-chan error) {
		output, to := io.Pipe()
		done := make(chan error, 1)
		go func() { done <- s.Attach(ctx, "c", input, to, nil, false, nil) }()
		return output, done
	}
	waiting, typed := io.Pipe()
	staying, stays := attach(waiting)
	write(t, typed, "one")
	container, err := os.OpenFile(c.paths[0], os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer container.Close()
	expect(t, container, "one")
	first, leaves := attach(readFunc(func([]byte) (int, error) { return 0, io.EOF }))
	<-c.closed
	if _, err := os.Stat(c.paths[0]); !os.IsNotExist(err) {
		t.Errorf("the input is there after its end: %v", err)
	}
	_, _ = typed.Write([]byte("two")) // to the end of its stream
	late, lives := attach(waiting)
	eventually.True(t, "three clients", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		o := s.open[c.paths[1]]
		return o != nil && len(o.clients) == 3
	})
	shim, err := os.OpenFile(c.paths[1], os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer shim.Close()
	write(t, shim, "bye")
	got := make(chan string)
	for _, output := range []*io.PipeReader{staying, first, late} {
		go func() {
			text := make([]byte, len("bye"))
			_, _ = io.ReadFull(output, text)
			got <- string(text)
		}()
	}
	for range 3 {
		if text := <-got; text != "bye" {
			t.Errorf("a client got %q", text)
		}
	}
	end()
	for _, left := range []<-chan error{stays, leaves, lives} {
		if err := <-left; err != nil {
			t.Error(err)
		}
	}
}

func TestUnknownInput(t *testing.T) {
	c := newTalker(t, "")
	if _, err := New(c, c, "").hasInputOnce(t.Context(), "c"); err == nil {
		t.Error("a status without a configuration has no error")
	}
	c.paths[0] = filepath.Join(t.TempDir(), "none", "stdin")
	if _, err := New(c, c, "").openInput(c.paths[0]); !os.IsNotExist(err) {
		t.Errorf("an input that does not exist: %v", err)
	}
}
