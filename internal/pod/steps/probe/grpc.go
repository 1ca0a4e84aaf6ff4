package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// askGRPC calls grpc.health.v1 for a service. SERVING is success.
func askGRPC(ctx context.Context, addr, service string, timeout time.Duration) answer {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var refused atomic.Pointer[error]
	conn, err := grpc.NewClient("passthrough:///"+addr,
		grpc.WithUserAgent(userAgent),
		grpc.WithTransportCredentials(insecure.NewCredentials()), // the API has no field for any others
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			c, err := dialer().DialContext(ctx, "tcp", addr)
			if err != nil {
				refused.Store(&err)
			}
			return c, err
		}))
	if err != nil {
		return failed("error: failed to connect service at %q: %s", addr, err)
	}
	defer func() { _ = conn.Close() }()
	if err := connect(ctx, conn); err != nil {
		if cause := refused.Load(); cause != nil {
			err = *cause
		}
		if ctx.Err() != nil {
			return failed("timeout: failed to connect service %q within %s: %s", addr, timeout, err)
		}
		return failed("error: failed to connect service at %q: %s", addr, err)
	}
	resp, err := health.NewHealthClient(conn).Check(ctx, &health.HealthCheckRequest{Service: service})
	switch {
	case status.Code(err) == codes.Unimplemented:
		return failed("error: this server does not implement the grpc health protocol (grpc.health.v1.Health): %s",
			status.Convert(err).Message())
	case status.Code(err) == codes.DeadlineExceeded:
		return failed("timeout: health rpc did not complete within %s", timeout)
	case err != nil:
		return failed("error: health rpc probe failed: %s", err)
	case resp.GetStatus() != health.HealthCheckResponse_SERVING:
		return failed("service unhealthy (responded with %q)", resp.GetStatus())
	}
	return answer{result: success, output: "service healthy"}
}

// connect waits until conn is ready. It does not retry, because the next probe will.
func connect(ctx context.Context, conn *grpc.ClientConn) error {
	conn.Connect()
	for {
		switch s := conn.GetState(); s {
		case connectivity.Ready:
			return nil
		case connectivity.TransientFailure, connectivity.Shutdown:
			return errors.New("the server did not accept the connection")
		default:
			if !conn.WaitForStateChange(ctx, s) {
				return fmt.Errorf("%s: %w", s, ctx.Err())
			}
		}
	}
}
