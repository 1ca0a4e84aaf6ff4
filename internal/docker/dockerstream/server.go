package dockerstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"k8s.io/cri-streaming/pkg/streaming"
)

// Server serves the streams of clients. Its methods GetExec, GetAttach and GetPortForward return the URL for one
// client.
type Server struct {
	streaming.Server
	streams  *Streams
	listener net.Listener
	http     *http.Server
}

// NewServer makes a server that answers at a listener. It does no I/O.
func NewServer(streams *Streams, listener net.Listener) (*Server, error) {
	config := streaming.DefaultConfig
	config.BaseURL = &url.URL{Scheme: "http", Host: listener.Addr().String()}
	s, err := streaming.NewServer(config, streams)
	if err != nil {
		return nil, fmt.Errorf("make streaming server: %w", err)
	}
	const patience = 30 * time.Second // for the header of a request
	return &Server{s, streams, listener, &http.Server{Handler: s, ReadHeaderTimeout: patience}}, nil
}

// Run serves until ctx ends. It returns when all commands that had to be killed are killed.
func (s *Server) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = s.http.Close() })
	defer stop()
	defer s.streams.kills.Wait()
	if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve streams: %w", err)
	}
	return nil
}
