package client

import (
	"errors"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	utilremote "k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/client-go/tools/remotecommand"
	clientspdy "k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// errCut is the error of a stream that ended without the server's word about the command. The server may have been
// killed.
var errCut = errors.New("the connection was cut before the command's end was known")

// pingPeriod is the time between two pings on a connection. A silent one is not taken for dead then. It is client-go's.
const pingPeriod = 5 * time.Second

// statusUpgrader makes connections that note whether the server has sent a command's status. client-go takes a
// connection that is cut for the success of the command.
type statusUpgrader struct {
	*spdy.SpdyRoundTripper
	arrived atomic.Bool
}

// newExecutor returns an executor for one stream. It offers only version 4 of the protocol (Kubernetes 1.4) and its
// successor: with these the server sends a status after each end, also after success.
func newExecutor(target *url.URL) (remotecommand.Executor, *statusUpgrader, error) {
	transport, err := spdy.NewRoundTripperWithConfig(spdy.RoundTripperConfig{PingPeriod: pingPeriod})
	if err != nil {
		return nil, nil, err
	}
	status := &statusUpgrader{SpdyRoundTripper: transport}
	executor, err := remotecommand.NewSPDYExecutorForProtocols(transport, clientspdy.NewUpgraderForStreaming(status),
		http.MethodPost, target, utilremote.StreamProtocolV5Name, utilremote.StreamProtocolV4Name)
	return executor, status, err
}

func (u *statusUpgrader) NewConnection(answer *http.Response) (httpstream.Connection, error) {
	conn, err := u.SpdyRoundTripper.NewConnection(answer)
	if err != nil {
		return nil, err
	}
	return &statusConnection{conn, &u.arrived}, nil
}

type statusConnection struct {
	httpstream.Connection
	arrived *atomic.Bool
}

func (c *statusConnection) CreateStream(headers http.Header) (httpstream.Stream, error) {
	stream, err := c.Connection.CreateStream(headers)
	if err == nil && headers.Get(corev1.StreamType) == corev1.StreamTypeError {
		return &statusStream{stream, c.arrived}, nil
	}
	return stream, err
}

type statusStream struct {
	httpstream.Stream
	arrived *atomic.Bool
}

func (s *statusStream) Read(p []byte) (int, error) {
	n, err := s.Stream.Read(p)
	if n > 0 {
		s.arrived.Store(true)
	}
	return n, err
}
