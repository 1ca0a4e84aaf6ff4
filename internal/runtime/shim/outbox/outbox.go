package outbox

import (
	"context"
	"net"
	"sync"
	"time"

	eventsapi "github.com/containerd/containerd/api/services/ttrpc/events/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/ttrpc"
	"github.com/containerd/typeurl/v2"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-run/berth/internal/base/wake"
)

// Outbox delivers events to containerd, in order. While containerd is away, it keeps them.
type Outbox struct {
	address string

	mu      sync.Mutex
	pending []message
	changed wake.Broadcast // of pending
}

// message is an event. sent is called when containerd has it, unless it is nil.
type message struct {
	envelope *types.Envelope
	sent     func()
}

// New makes an outbox for containerd's socket.
func New(address string) *Outbox {
	return &Outbox{address: address}
}

// Publish queues an event. It calls sent, unless that is nil, when containerd has the event.
func (o *Outbox) Publish(namespace, topic string, event any, sent func()) {
	content, err := typeurl.MarshalAnyToProto(event)
	if err != nil {
		return // only for types without a URL, which this program has none of
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pending = append(o.pending, message{&types.Envelope{
		Timestamp: timestamppb.Now(), Namespace: namespace, Topic: topic, Event: content,
	}, sent})
	o.changed.Wake()
}

// Flush waits until nothing is pending, for at most the given time.
func (o *Outbox) Flush(limit time.Duration) {
	late := time.After(limit)
	for {
		o.mu.Lock()
		empty, changed := len(o.pending) == 0, o.changed.C()
		o.mu.Unlock()
		if empty {
			return
		}
		select {
		case <-changed:
		case <-late:
			return
		}
	}
}

// Run delivers for ever.
func (o *Outbox) Run() {
	const again = 200 * time.Millisecond
	var client *ttrpc.Client
	for {
		o.mu.Lock()
		var next message
		if len(o.pending) > 0 {
			next = o.pending[0]
		}
		changed := o.changed.C()
		o.mu.Unlock()
		if next.envelope == nil {
			<-changed
			continue
		}
		if client == nil {
			conn, err := (&net.Dialer{}).DialContext(context.Background(), "unix", o.address)
			if err != nil {
				time.Sleep(again)
				continue
			}
			client = ttrpc.NewClient(conn)
		}
		if err := forward(client, next.envelope); err != nil {
			_ = client.Close()
			client = nil
			time.Sleep(again)
			continue
		}
		if next.sent != nil {
			next.sent()
		}
		o.mu.Lock()
		o.pending = o.pending[1:]
		o.changed.Wake()
		o.mu.Unlock()
	}
}

func forward(client *ttrpc.Client, event *types.Envelope) error {
	const limit = 5 * time.Second
	ctx, cancel := context.WithTimeout(namespaces.WithNamespace(context.Background(), event.Namespace), limit)
	defer cancel()
	_, err := eventsapi.NewTTRPCEventsClient(client).Forward(ctx, &eventsapi.ForwardRequest{Envelope: event})
	return err
}
