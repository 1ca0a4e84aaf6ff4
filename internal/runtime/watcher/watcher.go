package watcher

import (
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// room is how many events wait for a client.
	room = 1000
	// patience is how long a call of the runtime waits for room. A client that reads at all makes room in that time.
	patience = 5 * time.Second
)

// Serve calls handle with a stream whose messages wait for the client in a queue, up to 1,000. If there has been no
// room for 5 s, SendMsg returns ResourceExhausted, and the stream should end. handle must not change a message after it
// has sent it.
func Serve(stream grpc.ServerStream, log *slog.Logger, handle func(grpc.ServerStream) error) error {
	return newQueue(stream, room, patience, log).serve(handle)
}

func newQueue(stream grpc.ServerStream, room int, patience time.Duration, log *slog.Logger) *queue {
	return &queue{ServerStream: stream, messages: make(chan any, room), patience: patience, log: log,
		ended: make(chan struct{})}
}

func (q *queue) serve(handle func(grpc.ServerStream) error) error {
	go q.send()
	err := handle(q)
	close(q.messages)
	if err == nil { // what is in the queue still belongs to the stream
		select {
		case <-q.ended:
		case <-q.Context().Done():
		}
	}
	return err
}

// queue is a stream whose SendMsg does not wait for the client.
type queue struct {
	grpc.ServerStream
	messages chan any
	patience time.Duration
	log      *slog.Logger
	ended    chan struct{} // closed when send returns
	err      error         // of send
}

// send sends the messages, until one cannot be sent. If the stream ends while it waits for the client, the send fails.
func (q *queue) send() {
	defer close(q.ended)
	for m := range q.messages {
		if q.err = q.ServerStream.SendMsg(m); q.err != nil {
			return
		}
	}
}

// SendMsg implements grpc.ServerStream.
func (q *queue) SendMsg(m any) error {
	select {
	case <-q.ended:
		return q.err
	default:
	}
	select {
	case q.messages <- m:
		return nil
	default:
	}
	timer := time.NewTimer(q.patience)
	defer timer.Stop()
	select {
	case q.messages <- m:
		return nil
	case <-q.ended:
		return q.err
	case <-q.Context().Done():
		return status.FromContextError(q.Context().Err()).Err()
	case <-timer.C:
		q.log.Warn("a client does not read its events, ending its stream", "unread", len(q.messages))
		return status.Errorf(codes.ResourceExhausted, "the client has read no event for %s, and %d wait; "+
			"next: read all events at once, and list again after the stream has ended", q.patience, len(q.messages))
	}
}
