package watcher

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// source sends a number of events, each of 4 KiB. returned gets the result.
type source struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	events   int
	returned chan error
}

func newSource(events int) source { return source{events: events, returned: make(chan error, 1)} }

// GetContainerEvents implements runtimeapi.RuntimeServiceServer.
func (s source) GetContainerEvents(_ *runtimeapi.GetEventsRequest,
	to grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse]) error {
	err := func() error {
		for i := range s.events {
			e := &runtimeapi.ContainerEventResponse{CreatedAt: int64(i), ContainerId: strings.Repeat("x", 4096)}
			if err := to.Send(e); err != nil {
				return err
			}
		}
		return nil
	}()
	s.returned <- err
	return err
}

// watch opens an event stream to a source.
func watch(t *testing.T, s source, room int, patience time.Duration) (
	stream grpc.ServerStreamingClient[runtimeapi.ContainerEventResponse], cancel func()) {
	t.Helper()
	listener := bufconn.Listen(64 << 10)
	server := grpc.NewServer(grpc.StreamInterceptor(func(service any, stream grpc.ServerStream,
		_ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		q := newQueue(stream, room, patience, slog.New(slog.DiscardHandler))
		return q.serve(func(stream grpc.ServerStream) error { return handle(service, stream) })
	}))
	runtimeapi.RegisterRuntimeServiceServer(server, s)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:///source",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return listener.DialContext(ctx)
		}),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Stop()
		if err := errors.Join(conn.Close(), <-ended); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	stream, err = runtimeapi.NewRuntimeServiceClient(conn).GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return stream, cancel
}

// read reads the stream to its end.
func read(t *testing.T, stream grpc.ServerStreamingClient[runtimeapi.ContainerEventResponse]) (int, error) {
	t.Helper()
	for n := 0; ; n++ {
		e, err := stream.Recv()
		if err != nil {
			return n, err
		}
		if e.CreatedAt != int64(n) {
			t.Fatalf("event %d comes after %d others", e.CreatedAt, n)
		}
	}
}

// The source does not wait for a client while there is room. The client gets everything when it reads.
func TestClientReadsLater(t *testing.T) {
	s := newSource(500)
	stream, cancel := watch(t, s, 500, time.Hour)
	defer cancel()
	if err := <-s.returned; err != nil {
		t.Fatal(err)
	}
	if n, err := read(t, stream); n != 500 || !errors.Is(err, io.EOF) {
		t.Errorf("read %d events, then %v", n, err)
	}
}

// A client that reads gets everything, also more than there is room for.
func TestClientReads(t *testing.T) {
	s := newSource(5000)
	stream, cancel := watch(t, s, 10, time.Hour)
	defer cancel()
	if n, err := read(t, stream); n != 5000 || !errors.Is(err, io.EOF) {
		t.Errorf("read %d events, then %v", n, err)
	}
}

func TestClientThatDoesNotReadLosesItsStream(t *testing.T) {
	s := newSource(5000)
	stream, cancel := watch(t, s, 10, 50*time.Millisecond)
	defer cancel()
	if err := <-s.returned; status.Code(err) != codes.ResourceExhausted {
		t.Errorf("the source got %v", err)
	}
	if n, err := read(t, stream); n == 5000 || status.Code(err) != codes.ResourceExhausted {
		t.Errorf("read %d events, then %v", n, err)
	}
}

func TestClientThatGoesEndsTheWait(t *testing.T) {
	s := newSource(5000)
	stream, cancel := watch(t, s, 10, time.Hour)
	if _, err := stream.Recv(); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-s.returned; err == nil {
		t.Error("the source was not stopped")
	}
}
