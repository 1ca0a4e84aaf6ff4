package cri

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/guard/rpc"
)

// A call makes one unary CRI call. A concern wraps a call with one task, such as logging. Together they work like
// gRPC's unary interceptors, but also on a connection that another package made.
type (
	call    func(ctx context.Context, method string, req, reply any, opts ...grpc.CallOption) error
	concern func(next call) call
)

// intercept wraps conn with every concern, outermost first. The concerns above boundCall get an *Error and measure the
// time that the caller waited. checkCall, below it, turns an incomplete answer into a failure for all of them. Streams
// are few and long, so the reader of a stream logs its end. dropTasks is below boundCall, because the calls that it
// adds belong to the caller's and share its deadline.
//
// passPanic gives the caller a panic of the embedded runtime as a *guard.Panic, so that the pod is set aside.
func (c *Client) intercept(conn grpc.ClientConnInterface, o Options, m *metrics) grpc.ClientConnInterface {
	next := call(conn.Invoke)
	for _, wrap := range slices.Backward([]concern{
		traceCall,
		logCall(o.Log),
		m.countCall,
		c.reportTrouble,
		c.boundCall(o.Timeout),
		dropTasks(conn),
		passPanic,
		checkCall,
	}) {
		next = wrap(next)
	}
	return &intercepted{ClientConnInterface: conn, client: c, invoke: next, timeout: o.Timeout}
}

// intercepted is a connection whose calls go through the stack of concerns.
type intercepted struct {
	grpc.ClientConnInterface
	client  *Client
	invoke  call
	timeout time.Duration
}

// Invoke implements grpc.ClientConnInterface.
func (i *intercepted) Invoke(ctx context.Context, method string, req, reply any, opts ...grpc.CallOption) error {
	return i.invoke(ctx, method, req, reply, opts...)
}

// NewStream implements grpc.ClientConnInterface. It does for a stream what boundCall and reportTrouble do for a call.
// The deadline covers the whole stream (KEP-5825 for the streaming lists); only events have none. The deadline depends
// on the method alone, since the request is sent after the stream is made.
func (i *intercepted) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string,
	opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s := &stream{client: i.client, method: method, caller: ctx, start: time.Now(), most: i.timeout}
	if method == runtimeapi.RuntimeService_GetContainerEvents_FullMethodName {
		s.most = limit(&runtimeapi.GetEventsRequest{}, i.timeout)
	}
	var streamCtx context.Context
	if s.most > 0 {
		streamCtx, s.cancel = context.WithTimeout(ctx, s.most)
	} else {
		streamCtx, s.cancel = context.WithCancel(ctx)
	}
	var err error
	if s.ClientStream, err = i.ClientConnInterface.NewStream(streamCtx, desc, method, opts...); err != nil {
		return nil, s.end(err)
	}
	return s, nil
}

// traceCall makes a span for the call, with the provider of the span in ctx. It sends the span to the runtime (W3C
// trace context), so that the runtime's spans become its children.
func traceCall(next call) call {
	return func(ctx context.Context, method string, req, reply any, opts ...grpc.CallOption) error {
		parent := trace.SpanFromContext(ctx)
		if !parent.IsRecording() {
			return next(ctx, method, req, reply, opts...)
		}
		ctx, span := parent.TracerProvider().Tracer("github.com/berth-run/berth/internal/cri").Start(ctx,
			"cri/"+callName(method), trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attributes(req)...))
		defer span.End()
		header := propagation.MapCarrier{}
		propagation.TraceContext{}.Inject(ctx, header)
		for k, v := range header {
			ctx = metadata.AppendToOutgoingContext(ctx, k, v)
		}
		err := next(ctx, method, req, reply, opts...)
		if err != nil {
			span.SetStatus(codes.Error, err.Error())
		}
		if s, ok := reply.(*runtimeapi.RunPodSandboxResponse); ok && err == nil {
			span.SetAttributes(attribute.String("cri.sandbox.id", s.PodSandboxId))
		}
		if s, ok := reply.(*runtimeapi.CreateContainerResponse); ok && err == nil {
			span.SetAttributes(attribute.String("container.id", s.ContainerId))
		}
		return err
	}
}

// attributes name the sandbox, container or image of a request, with OpenTelemetry's keys where they exist.
func attributes(req any) []attribute.KeyValue {
	var as []attribute.KeyValue
	add := func(key, value string) {
		if value != "" {
			as = append(as, attribute.String(key, value))
		}
	}
	if r, ok := req.(interface{ GetPodSandboxId() string }); ok {
		add("cri.sandbox.id", r.GetPodSandboxId())
	}
	if r, ok := req.(interface{ GetContainerId() string }); ok {
		add("container.id", r.GetContainerId())
	}
	if r, ok := req.(interface{ GetImage() *runtimeapi.ImageSpec }); ok {
		add("container.image.name", r.GetImage().GetImage())
	}
	if r, ok := req.(*runtimeapi.CreateContainerRequest); ok {
		add("k8s.container.name", r.GetConfig().GetMetadata().GetName())
		add("container.image.name", r.GetConfig().GetImage().GetImage())
	}
	return as
}

func logCall(log *slog.Logger) concern {
	return func(next call) call {
		return func(ctx context.Context, method string, req, reply any, opts ...grpc.CallOption) error {
			if !log.Enabled(ctx, slog.LevelDebug) {
				return next(ctx, method, req, reply, opts...)
			}
			start := time.Now()
			err := next(ctx, method, req, reply, opts...)
			args := []slog.Attr{slog.String("call", callName(method)), slog.Duration("took", time.Since(start))}
			for _, a := range attributes(req) {
				args = append(args, slog.String(string(a.Key), a.Value.AsString()))
			}
			if err != nil {
				args = append(args, slog.String("error", err.Error()))
			}
			log.LogAttrs(ctx, slog.LevelDebug, "runtime call", args...)
			return err
		}
	}
}

// reportTrouble wakes the Monitor when the runtime did not answer a call. The Monitor thus notices at once that a
// runtime died, although it checks the status rarely.
func (c *Client) reportTrouble(next call) call {
	return func(ctx context.Context, method string, req, reply any, opts ...grpc.CallOption) error {
		err := next(ctx, method, req, reply, opts...)
		// The Monitor itself calls Status: a failure of that call must not trigger the next one.
		if _, own := req.(*runtimeapi.StatusRequest); !own {
			c.noteLost(err)
		}
		return err
	}
}

// noteLost wakes the Monitor if err says that the runtime did not answer.
func (c *Client) noteLost(err error) {
	if IsUnavailable(err) || IsHung(err) {
		c.lost.Wake()
	}
}

// boundCall sets the deadline of the call and returns its failure as an *Error.
func (c *Client) boundCall(timeout time.Duration) concern {
	return func(next call) call {
		return func(ctx context.Context, method string, req, reply any, opts ...grpc.CallOption) error {
			most := limit(req, timeout)
			callCtx, start := ctx, time.Now()
			if most > 0 {
				var cancel context.CancelFunc
				callCtx, cancel = context.WithTimeout(ctx, most)
				defer cancel()
			}
			err := next(callCtx, method, req, reply, opts...)
			return c.describe(ctx, method, most, time.Since(start), err)
		}
	}
}

// describe returns err as an *Error. The runtime may report a deadline, of the call or of the caller, a moment before
// the timer of this process fires.
func (c *Client) describe(ctx context.Context, method string, most, took time.Duration, err error) error {
	if err == nil {
		return nil
	}
	e := &Error{Call: callName(method), Endpoint: c.endpoint, Err: err, waited: took.Round(time.Millisecond)}
	if code := status.Code(err); code == grpccodes.Canceled || code == grpccodes.DeadlineExceeded {
		e.ctxErr = ctx.Err()
		deadline, bounded := ctx.Deadline()
		callers := took + time.Until(deadline) // the caller's limit, if it is bounded
		switch {
		case e.ctxErr != nil:
		case bounded && (most == 0 || callers < most) && passed(took, callers):
			e.ctxErr = context.DeadlineExceeded
		case most > 0 && passed(took, most):
			e.Limit = most
		}
	}
	return e
}

// passed reports whether a call has used up its limit. 1 % of the limit does not count, because a runtime's clock may
// be ahead.
func passed(took, limit time.Duration) bool { return took >= limit-limit/100 }

func passPanic(next call) call {
	return func(ctx context.Context, method string, req, reply any, opts ...grpc.CallOption) error {
		err := next(ctx, method, req, reply, opts...)
		if p := rpc.Panic(err); p != nil {
			return p
		}
		return err
	}
}

func checkCall(next call) call {
	return func(ctx context.Context, method string, req, reply any, opts ...grpc.CallOption) error {
		if err := next(ctx, method, req, reply, opts...); err != nil {
			return err
		}
		return checkAnswer(reply)
	}
}

// stream is a stream of CRI messages. It cancels its context after the last message, as gRPC requires of a client.
type stream struct {
	grpc.ClientStream
	client *Client
	method string
	caller context.Context
	cancel context.CancelFunc
	start  time.Time
	most   time.Duration
}

// SendMsg sends the request. A failure ends the stream.
func (s *stream) SendMsg(m any) error {
	if err := s.ClientStream.SendMsg(m); err != nil {
		return s.end(err)
	}
	return nil
}

// RecvMsg returns io.EOF at the regular end of the stream and an *Error after a failure.
func (s *stream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err == nil {
		return nil
	}
	return s.end(err)
}

func (s *stream) end(err error) error {
	s.cancel()
	if errors.Is(err, io.EOF) {
		return err
	}
	err = s.client.describe(s.caller, s.method, s.most, time.Since(s.start), err)
	s.client.noteLost(err)
	return err
}
