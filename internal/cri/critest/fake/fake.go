package fake

import (
	"context"
	"fmt"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri"
)

// Image is the reference of the test workload in every Runtime.
const Image = "berth.test/workload:latest"

// Runtime is an in-memory CRI runtime. It is deterministic: ids count up from 1. It measures time only with timers, so
// a fake that was made inside a synctest bubble works there. All methods are safe for concurrent use.
type Runtime struct {
	*calls
	t      Test
	pods   *pods
	images *images

	mu       sync.Mutex
	server   *grpc.Server // nil while down
	listener *bufconn.Listener
	serving  sync.WaitGroup
}

// Test is the part of testing.TB that a Runtime needs. A measurement has one of its own.
type Test interface {
	Helper()
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Cleanup(f func())
}

// New starts a runtime whose only image is Image, and stops it at the end of t.
func New(t Test) *Runtime {
	f := &Runtime{t: t, calls: &calls{}, images: newImages(), pods: newPods()}
	f.AddImage(Image)
	f.Up()
	t.Cleanup(f.shutdown)
	return f
}

// Client makes a client of the fake. It is closed at the end of the test.
func (f *Runtime) Client(o cri.Options) *cri.Client {
	f.t.Helper()
	c, err := cri.NewFromDialer("fake", f.Dial, o)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = c.Close() })
	return c
}

// Dial connects to the fake. It fails while the fake is down.
func (f *Runtime) Dial(ctx context.Context, _ string) (net.Conn, error) {
	f.mu.Lock()
	l := f.listener
	f.mu.Unlock()
	if l == nil {
		return nil, fmt.Errorf("dial fake runtime: connection refused")
	}
	return l.DialContext(ctx)
}

// Up starts serving, at first and after Down.
func (f *Runtime) Up() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.server != nil {
		return
	}
	f.listener = bufconn.Listen(1 << 20)
	f.server = grpc.NewServer(grpc.WaitForHandlers(true), grpc.UnaryInterceptor(f.interceptCall),
		grpc.StreamInterceptor(f.interceptStream))
	runtimeapi.RegisterRuntimeServiceServer(f.server, &runtimeServer{pods: f.pods, images: f.images})
	runtimeapi.RegisterImageServiceServer(f.server, &imageServer{images: f.images})
	server, listener := f.server, f.listener
	f.serving.Go(func() { _ = server.Serve(listener) })
}

// Serve also serves at a listener, until Down or the end of the test. It returns at once.
func (f *Runtime) Serve(l net.Listener) {
	f.mu.Lock()
	defer f.mu.Unlock()
	server := f.server
	f.serving.Go(func() { _ = server.Serve(l) })
}

// Down breaks every connection and refuses new ones, like a runtime that died. Containers run on, as they do under a
// shim.
func (f *Runtime) Down() {
	f.mu.Lock()
	server := f.server
	f.server, f.listener = nil, nil
	f.mu.Unlock()
	if server != nil {
		server.Stop()
	}
}

func (f *Runtime) shutdown() {
	f.Down()
	f.pods.close()
	f.serving.Wait()
}

// Exit ends the running main process of a container with a code. An empty reason becomes the reason that a runtime
// reports for that code. Another common reason is "OOMKilled".
func (f *Runtime) Exit(containerID string, code int32, reason string) {
	f.pods.mu.Lock()
	defer f.pods.mu.Unlock()
	c := f.pods.container(containerID)
	if c == nil {
		f.t.Errorf("fake runtime: exit of unknown container %s", containerID)
		return
	}
	f.pods.exit(c, code, reason)
}

// KillSandbox makes a sandbox not ready, as if its process had died. Its containers run on.
func (f *Runtime) KillSandbox(id string) {
	f.pods.mu.Lock()
	defer f.pods.mu.Unlock()
	s := f.pods.sandbox(id)
	if s == nil {
		f.t.Errorf("fake runtime: kill of unknown sandbox %s", id)
		return
	}
	f.pods.stop(s)
}

// SetNetwork sets the network condition in the answers of Status.
func (f *Runtime) SetNetwork(ready bool, reason, message string) {
	f.pods.mu.Lock()
	defer f.pods.mu.Unlock()
	f.pods.network = &runtimeapi.RuntimeCondition{Type: runtimeapi.NetworkReady, Status: ready, Reason: reason,
		Message: message}
}

// DropEvents breaks all event streams, like a lost connection.
func (f *Runtime) DropEvents() {
	f.pods.mu.Lock()
	defer f.pods.mu.Unlock()
	for ch := range f.pods.streams {
		close(ch)
	}
	clear(f.pods.streams)
}

// AddImage adds an image to the store. Every image of the fake contains the test workload.
func (f *Runtime) AddImage(ref string) {
	f.images.mu.Lock()
	defer f.images.mu.Unlock()
	f.images.stored[ref] = imageOf(ref)
}

// Publish adds an image to the registry, so that it can be pulled. It does not add it to the store.
func (f *Runtime) Publish(ref string) {
	f.images.mu.Lock()
	defer f.images.mu.Unlock()
	f.images.registry[ref] = true
}
