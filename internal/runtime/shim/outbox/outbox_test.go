package outbox

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	events "github.com/containerd/containerd/api/events"
	eventsapi "github.com/containerd/containerd/api/services/ttrpc/events/v1"
	"github.com/containerd/ttrpc"
	"github.com/containerd/typeurl/v2"
	"google.golang.org/protobuf/types/known/emptypb"
)

// containerd gets events. It refuses the first.
type containerd struct {
	mu       sync.Mutex
	refused  bool
	received []string
}

// Forward implements eventsapi.TTRPCEventsService.
func (c *containerd) Forward(_ context.Context, r *eventsapi.ForwardRequest) (*emptypb.Empty, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.refused {
		c.refused = true
		return nil, errors.New("not yet")
	}
	var event events.TaskOOM
	if err := typeurl.UnmarshalTo(r.Envelope.Event, &event); err != nil {
		return nil, err
	}
	c.received = append(c.received, r.Envelope.Namespace+r.Envelope.Topic+" "+event.ContainerID)
	return &emptypb.Empty{}, nil
}

// Events wait while containerd is away, and after an error. They arrive in order.
func TestEventsWaitForContainerd(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "events")
	o := New(socket)
	go o.Run()
	sent := make(chan string, 2)
	for _, id := range []string{"first", "second"} {
		o.Publish("k8s.io", "/tasks/oom", &events.TaskOOM{ContainerID: id}, func() { sent <- id })
	}
	o.Flush(time.Millisecond)
	select {
	case id := <-sent:
		t.Fatalf("event %s was sent to nobody", id)
	default:
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server, err := ttrpc.NewServer()
	if err != nil {
		t.Fatal(err)
	}
	var c containerd
	eventsapi.RegisterTTRPCEventsService(server, &c)
	go func() { _ = server.Serve(t.Context(), listener) }()
	defer func() { _ = server.Close() }()
	if first, second := <-sent, <-sent; first != "first" || second != "second" {
		t.Errorf("sent %s before %s", first, second)
	}
	o.Flush(time.Minute)
	c.mu.Lock()
	defer c.mu.Unlock()
	if want := []string{"k8s.io/tasks/oom first", "k8s.io/tasks/oom second"}; !slices.Equal(c.received, want) {
		t.Errorf("received %q, want %q", c.received, want)
	}
}
