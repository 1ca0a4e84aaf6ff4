package cri

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/unixsocket"
	"github.com/berth-run/berth/internal/base/wake"
)

const (
	// DefaultTimeout is the kubelet's runtimeRequestTimeout.
	DefaultTimeout = 2 * time.Minute

	// maxMessage is the largest answer in bytes, as in the kubelet. A list of all containers of a full node exceeds
	// gRPC's default of 4 MiB.
	maxMessage = 16 << 20
)

// Client is a CRI v1 runtime and image service over one connection. Its calls go through the stack in intercept.go, so
// the error of a failed call is always an *Error. The client reconnects by itself. A call while the runtime is
// unreachable fails at once, and IsUnavailable reports true for its error.
type Client struct {
	Runtime runtimeapi.RuntimeServiceClient
	Images  runtimeapi.ImageServiceClient

	endpoint string
	close    func() error
	lost     wake.Signal // wakes the Monitor when the runtime did not answer a call
}

// Options configure a Client. The zero value works.
type Options struct {
	// Timeout is the base of every call's deadline (the kubelet's runtimeRequestTimeout); 0 means DefaultTimeout. See
	// limit for the deadline of each call.
	Timeout time.Duration
	// Log receives one debug record per call; nil discards them.
	Log *slog.Logger
	// Registerer registers the kubelet_runtime_operations_* metrics; nil leaves them unregistered. Clients with the
	// same Registerer share the series.
	Registerer prometheus.Registerer
}

// New makes a client of the runtime at endpoint, "unix:///path/to.sock". It does no I/O: the first call connects. Call
// Verify to check that a runtime answers.
func New(endpoint string, o Options) (*Client, error) {
	path, err := socketPath(endpoint)
	if err != nil {
		return nil, err
	}
	return NewFromDialer(endpoint, func(ctx context.Context, _ string) (net.Conn, error) {
		return unixsocket.Dial(ctx, path)
	}, o)
}

// Dial is New followed by Verify.
func Dial(ctx context.Context, endpoint string, o Options) (*Client, error) {
	c, err := New(endpoint, o)
	if err != nil {
		return nil, err
	}
	if _, err := c.Verify(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// NewFromDialer makes a client whose connections come from dial. endpoint is used only as its name in errors.
func NewFromDialer(endpoint string, dial func(context.Context, string) (net.Conn, error), o Options) (*Client, error) {
	conn, err := grpc.NewClient("passthrough:///cri",
		grpc.WithContextDialer(dial),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		// A restarting runtime is back within seconds, so the client waits at most one second between attempts.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2,
				MaxDelay: time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
	)
	if err != nil {
		return nil, fmt.Errorf("make CRI client of %s: %w", endpoint, err)
	}
	c, err := NewFromConn(endpoint, conn, o)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	c.close = conn.Close
	return c, nil
}

// NewFromConn makes a client on a connection that the caller keeps and closes, such as the in-memory one of the
// embedded runtime. endpoint is used only as its name in errors.
func NewFromConn(endpoint string, conn grpc.ClientConnInterface, o Options) (*Client, error) {
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	m, err := newMetrics(o.Registerer)
	if err != nil {
		return nil, err
	}
	c := &Client{endpoint: endpoint, close: func() error { return nil }, lost: wake.New()}
	stacked := c.intercept(conn, o, m)
	c.Runtime = runtimeapi.NewRuntimeServiceClient(stacked)
	c.Images = runtimeapi.NewImageServiceClient(stacked)
	return c, nil
}

// Endpoint is the name of the runtime in errors: its address, if it has one.
func (c *Client) Endpoint() string { return c.endpoint }

// Close closes the connection if the client made it, which ends every call on it. The runtime keeps running.
func (c *Client) Close() error { return c.close() }

// Verify requests the runtime's version. If no runtime answers, or it does not serve CRI v1, the error says what to do.
func (c *Client) Verify(ctx context.Context) (*runtimeapi.VersionResponse, error) {
	v, err := c.Runtime.Version(ctx, &runtimeapi.VersionRequest{})
	switch {
	case err == nil:
		return v, nil
	case IsUnimplemented(err):
		return nil,
			fmt.Errorf("use container runtime: %w: it does not serve CRI v1: enable its CRI plugin or update it", err)
	case IsUnavailable(err):
		err = &Error{Call: "Version", Endpoint: c.endpoint, Err: status.Error(codes.Unavailable, c.hint(err))}
	}
	return nil, fmt.Errorf("use container runtime: %w", err)
}

// hint says how to make an unreachable runtime reachable. gRPC reports dial errors only as text, so hint checks the
// socket itself.
func (c *Client) hint(unavailable error) string {
	path, err := socketPath(c.endpoint)
	if err != nil {
		return status.Convert(unavailable).Message() // served in memory
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Sprintf("%s does not exist: start the runtime or correct containerRuntimeEndpoint", path)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Sprintf("%s may not be read by this user: run as root", path)
	case err == nil && info.Mode().Type() != fs.ModeSocket:
		return fmt.Sprintf("%s is not a socket: correct containerRuntimeEndpoint", path)
	}
	return fmt.Sprintf("the socket exists but no runtime answers on it: restart the runtime (%s)",
		status.Convert(unavailable).Message())
}

// socketPath returns the path of a unix endpoint.
func socketPath(endpoint string) (string, error) {
	scheme, path, ok := strings.Cut(endpoint, "://")
	switch {
	case endpoint == "":
		return "", errors.New("container runtime endpoint is empty: write unix:///path/to/runtime.sock")
	case !ok && filepath.IsAbs(endpoint):
		return "", fmt.Errorf("container runtime endpoint %q has no scheme: write unix://%s", endpoint, endpoint)
	case !ok || scheme != "unix":
		return "", fmt.Errorf("container runtime endpoint %q is not supported: write unix:///path/to/runtime.sock",
			endpoint)
	case !filepath.IsAbs(path):
		return "", fmt.Errorf(
			"container runtime endpoint %q needs an absolute path: write unix:///path/to/runtime.sock", endpoint)
	}
	return path, nil
}
