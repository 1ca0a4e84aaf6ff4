package rpc

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
)

// service panics for the service "bad" and refuses the service "unknown".
type service struct {
	grpc_health_v1.UnimplementedHealthServer
}

func (service) Check(_ context.Context, r *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse,
	error) {
	if r.Service == "unknown" {
		return nil, status.Error(codes.NotFound, "panic: none")
	}
	if r.Service == "bad" {
		var none *service
		_ = *none
	}
	return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}, nil
}

func (service) Watch(*grpc_health_v1.HealthCheckRequest, grpc.ServerStreamingServer[grpc_health_v1.HealthCheckResponse],
) error {
	panic(errors.New("broken"))
}

func dial(t *testing.T, log io.Writer) grpc_health_v1.HealthClient {
	t.Helper()
	logger := slog.New(slog.NewTextHandler(log, nil))
	return serve(t, grpc.ChainUnaryInterceptor(Unary(logger)), grpc.ChainStreamInterceptor(Stream(logger)))
}

func serve(t *testing.T, options ...grpc.ServerOption) grpc_health_v1.HealthClient {
	t.Helper()
	l := bufconn.Listen(1 << 20)
	server := grpc.NewServer(options...)
	grpc_health_v1.RegisterHealthServer(server, service{})
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient("passthrough:///buffer", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return grpc_health_v1.NewHealthClient(conn)
}

func TestPanicOfACall(t *testing.T) {
	var log strings.Builder
	client := dial(t, &log)
	_, err := client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: "bad"})
	p := Panic(err)
	if status.Code(err) != codes.Internal || p == nil {
		t.Fatalf("got %v, want a panic", err)
	}
	const value, place = "nil pointer dereference", "rpc.service.Check"
	if !strings.Contains(p.Error(), value) || !strings.Contains(p.Error(), place) || !strings.Contains(p.Stack, place) {
		t.Errorf("got %q with the stack %s", p.Error(), p.Stack)
	}
	if !strings.Contains(log.String(), place) || !strings.Contains(log.String(), "Health/Check") {
		t.Errorf("the log is %q", log.String())
	}
	if _, err := client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); err != nil {
		t.Errorf("the next call fails: %v", err)
	}
}

// An interceptor between two guards gets a panic of the handler as an error, and its own panic is caught.
func TestInterceptorsBetweenTheGuards(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	own := false
	var got error
	between := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		if own {
			panic("own")
		}
		var answer any
		answer, got = handle(ctx, req)
		return answer, got
	}
	client := serve(t, grpc.ChainUnaryInterceptor(Unary(log), between, Unary(log)))
	_, err := client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: "bad"})
	if Panic(got) == nil || Panic(err) == nil {
		t.Errorf("the interceptor got %v and the client %v, want the panic", got, err)
	}
	own = true
	if _, err := client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); Panic(err) == nil {
		t.Errorf("got %v, want the interceptor's panic", err)
	}
}

func TestPanicOfAStream(t *testing.T) {
	client := dial(t, io.Discard)
	stream, err := client.Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = stream.Recv(); Panic(err) == nil || Panic(err).Value != "broken" {
		t.Errorf("got %v, want a panic", err)
	}
}

func TestOtherErrorsAreNoPanics(t *testing.T) {
	client := dial(t, io.Discard)
	_, err := client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: "unknown"})
	if status.Code(err) != codes.NotFound || Panic(err) != nil || Panic(nil) != nil || Panic(io.EOF) != nil {
		t.Errorf("got %v, a panic", err)
	}
}
