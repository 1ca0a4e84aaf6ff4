package critest

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri"
)

// FakeImage is the reference of the test workload in every Fake.
const FakeImage = "berth.test/workload:latest"

// Fake is an in-memory CRI runtime. It is deterministic: ids count up from 1. It measures time only with timers, so a
// fake that was made inside a synctest bubble works there. All methods are safe for concurrent use.
type Fake struct {
	t testing.TB

	mu         sync.Mutex
	server     *grpc.Server // nil while down
	listener   *bufconn.Listener
	serving    sync.WaitGroup
	sandboxes  []*sandbox   // in the order of creation
	containers []*container // in the order of creation
	images     map[string]*runtimeapi.Image
	registry   map[string]bool // references that PullImage can pull
	created    int             // number of sandboxes and containers created so far
	calls      []Call
	faults     []*Fault
	streams    map[chan *runtimeapi.ContainerEventResponse]bool // open event streams
	network    *runtimeapi.RuntimeCondition
	closed     bool // the test has ended: processes stop acting
}

// Call is one call that reached the fake.
type Call struct {
	Method  string // for example "RunPodSandbox"
	Request any    // the request message
}

// Fault makes calls fail, hang or answer wrongly. Its parts apply in the order of the fields.
type Fault struct {
	// Method is the CRI method that the fault applies to, for example "StartContainer".
	Method string
	// Match selects the requests that the fault applies to; nil means all.
	Match func(request any) bool
	// Times is the number of calls that the fault applies to; 0 means all calls until it is removed.
	Times int
	// Delay is the time before the call is served.
	Delay time.Duration
	// Hang blocks the call until the caller gives up. The call has no effect.
	Hang bool
	// Err is returned instead of serving the call. Make it with status.Error to choose its gRPC code.
	Err error
	// Answer returns another answer for the served call, or the same one with changes.
	Answer func(response any) any
}

// NewFake starts a runtime whose only image is FakeImage, and stops it at the end of t.
func NewFake(t testing.TB) *Fake {
	f := &Fake{
		t:        t,
		images:   map[string]*runtimeapi.Image{},
		registry: map[string]bool{},
		streams:  map[chan *runtimeapi.ContainerEventResponse]bool{},
		network:  &runtimeapi.RuntimeCondition{Type: runtimeapi.NetworkReady, Status: true},
	}
	f.AddImage(FakeImage)
	f.Up()
	t.Cleanup(f.shutdown)
	return f
}

// Client makes a client of the fake. It is closed at the end of the test.
func (f *Fake) Client(o cri.Options) *cri.Client {
	f.t.Helper()
	c, err := cri.NewFromDialer("fake", f.Dial, o)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = c.Close() })
	return c
}

// Dial connects to the fake. It fails while the fake is down.
func (f *Fake) Dial(ctx context.Context, _ string) (net.Conn, error) {
	f.mu.Lock()
	l := f.listener
	f.mu.Unlock()
	if l == nil {
		return nil, fmt.Errorf("dial fake runtime: connection refused")
	}
	return l.DialContext(ctx)
}

// Up starts serving, at first and after Down.
func (f *Fake) Up() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.server != nil {
		return
	}
	f.listener = bufconn.Listen(1 << 20)
	f.server = grpc.NewServer(grpc.WaitForHandlers(true), grpc.UnaryInterceptor(f.interceptCall),
		grpc.StreamInterceptor(f.interceptStream))
	runtimeapi.RegisterRuntimeServiceServer(f.server, &runtimeServer{Fake: f})
	runtimeapi.RegisterImageServiceServer(f.server, &imageServer{Fake: f})
	server, listener := f.server, f.listener
	f.serving.Go(func() { _ = server.Serve(listener) })
}

// Down breaks every connection and refuses new ones, like a runtime that died. Containers run on, as they do under a
// shim.
func (f *Fake) Down() {
	f.mu.Lock()
	server := f.server
	f.server, f.listener = nil, nil
	f.mu.Unlock()
	if server != nil {
		server.Stop()
	}
}

func (f *Fake) shutdown() {
	f.Down()
	f.mu.Lock()
	f.closed = true
	for _, c := range f.containers {
		c.halt()
	}
	f.mu.Unlock()
	f.serving.Wait()
}

// Inject adds a fault and returns a function that removes it. Only one fault applies to a call: the one that was
// injected last. Removing a fault does not end the calls that already hang.
func (f *Fake) Inject(fault Fault) (remove func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	added := &fault
	f.faults = slices.Insert(f.faults, 0, added)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.faults = slices.DeleteFunc(f.faults, func(injected *Fault) bool { return injected == added })
	}
}

// Calls returns the calls so far in the order of their arrival. If methods are given, it returns only the calls of
// these methods.
func (f *Fake) Calls(methods ...string) []Call {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []Call
	for _, c := range f.calls {
		if len(methods) == 0 || slices.Contains(methods, c.Method) {
			out = append(out, c)
		}
	}
	return out
}

// Exit ends the running main process of a container with a code. An empty reason becomes the reason that a runtime
// reports for that code. Another common reason is "OOMKilled".
func (f *Fake) Exit(containerID string, code int32, reason string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.container(containerID)
	if c == nil {
		f.t.Errorf("fake runtime: exit of unknown container %s", containerID)
		return
	}
	f.exit(c, code, reason)
}

// KillSandbox makes a sandbox not ready, as if its pause process had died. Its containers run on.
func (f *Fake) KillSandbox(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.sandbox(id)
	if s == nil {
		f.t.Errorf("fake runtime: kill of unknown sandbox %s", id)
		return
	}
	f.stopSandbox(s)
}

// SetNetwork sets the network condition in the answers of Status.
func (f *Fake) SetNetwork(ready bool, reason, message string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.network = &runtimeapi.RuntimeCondition{Type: runtimeapi.NetworkReady, Status: ready, Reason: reason,
		Message: message}
}

// DropEvents breaks all event streams, like a lost connection.
func (f *Fake) DropEvents() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for ch := range f.streams {
		close(ch)
	}
	clear(f.streams)
}

// AddImage adds an image to the store. Every image of the fake contains the test workload.
func (f *Fake) AddImage(ref string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.images[ref] = fakeImage(ref)
}

// Publish adds an image to the registry, so that it can be pulled. It does not add it to the store.
func (f *Fake) Publish(ref string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.registry[ref] = true
}

// fault records the call and returns the first fault that applies to it, or nil.
func (f *Fake) fault(method string, req any) *Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, Call{Method: method, Request: req})
	for i, fault := range f.faults {
		if fault.Method != method || (fault.Match != nil && !fault.Match(req)) {
			continue
		}
		if fault.Times > 0 {
			if fault.Times--; fault.Times == 0 {
				f.faults = slices.Delete(f.faults, i, i+1)
			}
		}
		return fault
	}
	return nil
}

func (f *Fake) interceptCall(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any,
	error) {
	fault := f.fault(methodName(info.FullMethod), req)
	if fault == nil {
		return handler(ctx, req)
	}
	if err := fault.before(ctx); err != nil {
		return nil, err
	}
	resp, err := handler(ctx, req)
	if err == nil && fault.Answer != nil {
		resp = fault.Answer(resp)
	}
	return resp, err
}

func (f *Fake) interceptStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo,
	handler grpc.StreamHandler) error {
	if fault := f.fault(methodName(info.FullMethod), nil); fault != nil {
		if err := fault.before(stream.Context()); err != nil {
			return err
		}
	}
	return handler(srv, stream)
}

// before applies the parts of a fault that precede the call.
func (fault *Fault) before(ctx context.Context) error {
	if fault.Delay > 0 && !sleep(ctx, fault.Delay) {
		return status.FromContextError(ctx.Err()).Err()
	}
	if fault.Hang {
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	}
	return fault.Err
}

// Unimplemented is the fault of a runtime that lacks a method.
func Unimplemented(method string) Fault {
	return Fault{Method: method, Err: status.Errorf(codes.Unimplemented, "unknown method %s", method)}
}

// sleep reports whether d passed before ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

func methodName(full string) string { return full[strings.LastIndexByte(full, '/')+1:] }
