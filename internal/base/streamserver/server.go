package streamserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"

	"k8s.io/cri-streaming/pkg/streaming"

	"github.com/berth-run/berth/internal/base/limit"
)

// bounds of the streams of all pods. The client is the agent. Every other user of the machine can open connections too,
// and gets no stream without a token.
var bounds = limit.Bounds{Connections: 1000, Requests: 1000, AllConnections: 2000}

// Server serves the streams of clients. Its methods GetExec, GetAttach and GetPortForward return the URL for one
// client.
type Server struct {
	streaming.Server
	listener net.Listener
	http     *http.Server
}

// New makes a server that answers at a listener. It does no I/O. The server bounds connections, requests and their
// bodies. Once a connection is a stream, it ends after four hours without traffic.
func New(streams streaming.Runtime, listener net.Listener) (*Server, error) {
	return newServer(streams, listener, bounds)
}

func newServer(streams streaming.Runtime, listener net.Listener, bounds limit.Bounds) (*Server, error) {
	config := streaming.DefaultConfig
	config.BaseURL = &url.URL{Scheme: "http", Host: listener.Addr().String()}
	s, err := streaming.NewServer(config, streams)
	if err != nil {
		return nil, fmt.Errorf("make streaming server: %w", err)
	}
	return &Server{s, limit.Listener(listener, bounds), &http.Server{
		Handler:           limit.Requests(limit.Bodies(s), bounds, limit.RefuseText),
		ReadHeaderTimeout: limit.Header,
		IdleTimeout:       limit.Idle,
	}}, nil
}

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = s.http.Close() })
	defer stop()
	if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve streams: %w", err)
	}
	return nil
}
