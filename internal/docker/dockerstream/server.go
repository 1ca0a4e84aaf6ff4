package dockerstream

import (
	"context"
	"net"

	"github.com/berth-run/berth/internal/base/streamserver"
)

// Server serves the streams of clients. Its methods GetExec, GetAttach and GetPortForward return the URL for one
// client.
type Server struct {
	*streamserver.Server
	streams *Streams
}

// NewServer makes a server that answers at a listener. It does no I/O.
func NewServer(streams *Streams, listener net.Listener) (*Server, error) {
	server, err := streamserver.New(streams, listener)
	if err != nil {
		return nil, err
	}
	return &Server{server, streams}, nil
}

// Run serves until ctx ends. It returns when all commands that had to be killed are killed.
func (s *Server) Run(ctx context.Context) error {
	defer s.streams.kills.Wait()
	return s.Server.Run(ctx)
}
