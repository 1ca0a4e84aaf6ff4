package rpc

import (
	"context"
	"log/slog"
	"path"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-run/berth/internal/base/guard"
)

// mark precedes the value of a panic in the detail of its status.
const mark = "panic: "

// Unary returns the server's interceptor for calls with one answer. A call whose handler panics fails with
// codes.Internal, and the stack goes to the log. As the last interceptor it gives the others the panic as an error, so
// that they count or undo the call. As the first one it guards the others themselves.
func Unary(log *slog.Logger) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (answer any,
		err error) {
		err = guard.Call(func() (err error) {
			service, name := path.Split(info.FullMethod)
			guard.Point("call", path.Base(service), name)
			answer, err = handle(ctx, req)
			return err
		})
		return answer, encode(log, info.FullMethod, err)
	}
}

// Stream returns the server's interceptor for streams. A stream whose handler panics fails in the same way.
func Stream(log *slog.Logger) grpc.StreamServerInterceptor {
	return func(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		err := guard.Call(func() error { return handle(service, stream) })
		return encode(log, info.FullMethod, err)
	}
}

// encode returns err, or the status for a panic.
func encode(log *slog.Logger, method string, err error) error {
	p := guard.Of(err)
	if p == nil {
		return err
	}
	log.Error("panic in a call, only this call fails", "call", method, "err", p, "stack", p.Stack)
	s := status.New(codes.Internal, p.Error())
	detailed, failed := s.WithDetails(&errdetails.DebugInfo{StackEntries: strings.Split(p.Stack, "\n"),
		Detail: mark + p.Value})
	if failed != nil {
		return s.Err()
	}
	return detailed.Err()
}

// Panic returns the panic of the handler that made a call fail with err, or nil if it did not panic.
func Panic(err error) *guard.Panic {
	for _, detail := range status.Convert(err).Details() {
		info, ok := detail.(*errdetails.DebugInfo)
		if !ok {
			continue
		}
		if value, ok := strings.CutPrefix(info.GetDetail(), mark); ok {
			return &guard.Panic{Value: value, Stack: strings.Join(info.GetStackEntries(), "\n")}
		}
	}
	return nil
}
