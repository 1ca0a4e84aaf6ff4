package docker

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"

	"github.com/moby/moby/client"
	"github.com/moby/moby/client/pkg/versions"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/unixsocket"
)

const (
	// Scheme is the scheme of the endpoints of Docker Engines.
	Scheme = "docker://"
	// DefaultSocket is where a Docker Engine listens by default.
	DefaultSocket = "/var/run/docker.sock"
)

// Features that older Engines lack. Each value is the version of the API that brought the feature.
const (
	// CDI devices: Docker 25.
	CDI = "1.44"
	// RecursiveReadOnly: mounts that are read-only with all mounts below them, and mounts that are not: Docker 25.
	RecursiveReadOnly = "1.44"
	// Annotations of the runtime's specification: Docker 24.
	Annotations = "1.43"
	// ImageMounts: images as volumes: Docker 28.
	ImageMounts = "1.48"
	// DiskUsageOfImages: the size of images without measuring containers: Docker 23.
	DiskUsageOfImages = "1.42"
	// StopSignals: a signal for a single stop: Docker 23.
	StopSignals = "1.42"
)

// Client is the client of one Docker Engine. It negotiates the version of the API with the first call that the Engine
// answers.
type Client struct {
	*client.Client
	path string
}

// New makes a client of the Engine at an endpoint; see SocketOf for its forms. It does no I/O.
func New(endpoint string) (*Client, error) {
	path, err := SocketOf(endpoint)
	if err != nil {
		return nil, err
	}
	var options []client.Opt
	if len(path) < len(unix.RawSockaddrUnix{}.Path) {
		// Errors of the library name this host, which may not have a longer path.
		options = append(options, client.WithHost("unix://"+path))
	}
	options = append(options, client.WithDialContext(func(ctx context.Context, _, _ string) (net.Conn, error) {
		return unixsocket.Dial(ctx, path)
	}))
	engine, err := client.New(options...)
	if err != nil {
		return nil, fmt.Errorf("make client of Docker at %s: %w", path, err)
	}
	return &Client{Client: engine, path: path}, nil
}

// Socket returns the path of the Engine's socket.
func (c *Client) Socket() string { return c.path }

// Negotiate agrees with the Engine on the version of the API, if no call has done so yet.
func (c *Client) Negotiate(ctx context.Context) error {
	_, err := c.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true})
	return Error(err)
}

// Supports reports whether the negotiated version of the API has a feature, such as CDI.
func (c *Client) Supports(feature string) bool {
	return versions.GreaterThanOrEqualTo(c.ClientVersion(), feature)
}

// SocketOf returns the path of the socket of an endpoint: "docker://" or "unix://" for the default one,
// "docker://unix:///path" or "unix:///path" for another.
func SocketOf(endpoint string) (string, error) {
	rest := strings.TrimPrefix(endpoint, Scheme)
	path, found := strings.CutPrefix(rest, "unix://")
	switch {
	case rest == "" || found && path == "":
		return DefaultSocket, nil
	case !found && strings.Contains(rest, "://"):
		return "", fmt.Errorf("endpoint %q of Docker: only unix sockets are supported; next: write %sunix:///path",
			endpoint, Scheme)
	case !found:
		return "", fmt.Errorf("endpoint %q of Docker has no scheme; next: write %sunix:///path", endpoint, Scheme)
	case !filepath.IsAbs(path):
		return "", fmt.Errorf("endpoint %q of Docker needs an absolute path; next: write %sunix:///path", endpoint,
			Scheme)
	}
	return path, nil
}
