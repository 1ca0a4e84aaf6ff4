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

// FakeImage is the reference under which every Fake has the test workload.
const FakeImage = "berth.test/workload:latest"

// Fake is a CRI runtime in memory. It is deterministic (ids count up from 1) and
// keeps time only with timers, so that it works inside a synctest bubble when it
// is made there. All methods may be called at any time from any goroutine.
type Fake struct {
	t testing.TB

	mu         sync.Mutex
	server     *grpc.Server // nil while down
	listener   *bufconn.Listener
	serving    sync.WaitGroup
	sandboxes  []*sandbox   // in the order of creation
	containers []*container // in the order of creation
	images     map[string]*runtimeapi.Image
	registry   map[string]bool // references that PullImage can find
	made       int             // sandboxes and containers so far
	calls      []Call
	faults     []*Fault
	streams    map[chan *runtimeapi.ContainerEventResponse]bool // open event streams
	network    *runtimeapi.RuntimeCondition
	closed     bool // the test is over: nothing acts any more
}

// Call is one call that reached the fake.
type Call struct {
	Method  string // for example "RunPodSandbox"
	Request any    // the request message
}

// Fault makes calls misbehave. Its parts are applied in the order of the fields.
type Fault struct {
	// Method is the CRI method it applies to, for example "StartContainer".
	Method string
	// Match limits it to some requests; nil is all.
	Match func(request any) bool
	// Times is how many calls it applies to; 0 is all until it is removed.
	Times int
	// Delay passes before the call is served.
	Delay time.Duration
	// Hang keeps the call until the caller gives up. Nothing takes effect.
	Hang bool
	// Err is returned instead of serving the call; wrap it with status.Error
	// to choose its code.
	Err error
	// Answer replaces the answer of the served call, or edits it in place.
	Answer func(response any) any
}

// NewFake starts a runtime that has FakeImage, and stops it at the end of t.
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

// Client makes a client of the fake, closed at the end of the test. Its Timeout
// is the default unless o says otherwise.
func (f *Fake) Client(o cri.Options) *cri.Client {
	f.t.Helper()
	c, err := cri.NewFromDialer("fake", f.Dial, o)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = c.Close() })
	return c
}

// Dial connects to the fake; it fails while the fake is down.
func (f *Fake) Dial(ctx context.Context, _ string) (net.Conn, error) {
	f.mu.Lock()
	l := f.listener
	f.mu.Unlock()
	if l == nil {
		return nil, fmt.Errorf("dial fake runtime: connection refused")
	}
	return l.DialContext(ctx)
}

// Up serves again after Down.
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

// Down breaks every connection and refuses new ones, as a runtime that died.
// Containers run on, as under a shim.
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

// Inject adds a fault, applied before those injected earlier, and returns what
// removes it. Calls that already hang stay so.
func (f *Fake) Inject(fault Fault) (remove func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	added := &fault
	f.faults = slices.Insert(f.faults, 0, added)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.faults = slices.DeleteFunc(f.faults, func(have *Fault) bool { return have == added })
	}
}

// Calls returns the calls so far in the order they arrived, limited to methods
// if any are given.
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

// Exit ends the running main process of a container with a code. A reason of ""
// is the one a runtime would give; another common one is "OOMKilled".
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

// KillSandbox makes a sandbox not ready, as when its holder process dies. Its
// containers run on.
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

// SetNetwork changes what Status says of the network.
func (f *Fake) SetNetwork(ready bool, reason, message string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.network = &runtimeapi.RuntimeCondition{Type: runtimeapi.NetworkReady, Status: ready, Reason: reason,
		Message: message}
}

// DropEvents breaks all event streams, as a connection that is lost.
func (f *Fake) DropEvents() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for ch := range f.streams {
		close(ch)
	}
	clear(f.streams)
}

// AddImage makes an image present. Every image of the fake is the workload.
func (f *Fake) AddImage(ref string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.images[ref] = fakeImage(ref)
}

// Publish makes an image pullable without making it present.
func (f *Fake) Publish(ref string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.registry[ref] = true
}

// fault notes the call and takes the first fault that applies to it.
func (f *Fake) fault(method string, req any) *Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, Call{Method: method, Request: req})
	for i, have := range f.faults {
		if have.Method != method || (have.Match != nil && !have.Match(req)) {
			continue
		}
		if have.Times > 0 {
			if have.Times--; have.Times == 0 {
				f.faults = slices.Delete(f.faults, i, i+1)
			}
		}
		return have
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

// Unimplemented is the answer of a runtime that lacks a method.
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
