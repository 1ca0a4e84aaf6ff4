package fake

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

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

// calls records the calls that reach the fake, and makes some of them fail.
type calls struct {
	mu       sync.Mutex
	received []Call
	faults   []*Fault
}

// Inject adds a fault and returns a function that removes it. Only one fault applies to a call: the one that was
// injected last. Removing a fault does not end the calls that already hang.
func (c *calls) Inject(fault Fault) (remove func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	added := &fault
	c.faults = slices.Insert(c.faults, 0, added)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.faults = slices.DeleteFunc(c.faults, func(injected *Fault) bool { return injected == added })
	}
}

// Calls returns the calls so far in the order of their arrival. If methods are given, it returns only the calls of
// these methods.
func (c *calls) Calls(methods ...string) []Call {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []Call
	for _, call := range c.received {
		if len(methods) == 0 || slices.Contains(methods, call.Method) {
			out = append(out, call)
		}
	}
	return out
}

// fault records the call and returns the first fault that applies to it, or nil.
func (c *calls) fault(method string, req any) *Fault {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.received = append(c.received, Call{Method: method, Request: req})
	for i, fault := range c.faults {
		if fault.Method != method || (fault.Match != nil && !fault.Match(req)) {
			continue
		}
		if fault.Times > 0 {
			if fault.Times--; fault.Times == 0 {
				c.faults = slices.Delete(c.faults, i, i+1)
			}
		}
		return fault
	}
	return nil
}

func (c *calls) interceptCall(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any,
	error) {
	fault := c.fault(methodName(info.FullMethod), req)
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

func (c *calls) interceptStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo,
	handler grpc.StreamHandler) error {
	if fault := c.fault(methodName(info.FullMethod), nil); fault != nil {
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
