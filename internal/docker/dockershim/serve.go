package dockershim

import (
	"context"
	"errors"
	"net"

	"google.golang.org/grpc"

	"github.com/berth-run/berth/internal/base/guard/rpc"
)

// maxMessage is the largest message in bytes, as in containerd and the kubelet.
const maxMessage = 16 << 20

// Serve serves the CRI at a listener until ctx ends, and cancels the calls that are then in progress. The server also
// needs Run.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	server := grpc.NewServer(grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage),
		grpc.WaitForHandlers(true), grpc.ChainUnaryInterceptor(rpc.Unary(s.config.Log)),
		grpc.ChainStreamInterceptor(rpc.Stream(s.config.Log)))
	s.Register(server)
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	err := server.Serve(listener)
	if ctx.Err() != nil && (err == nil || errors.Is(err, grpc.ErrServerStopped)) {
		return nil
	}
	return err
}
