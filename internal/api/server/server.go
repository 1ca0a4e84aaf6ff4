package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/api/answer"
	"github.com/berth-run/berth/internal/api/live"
	"github.com/berth-run/berth/internal/api/nodeinfo"
	"github.com/berth-run/berth/internal/api/past"
	"github.com/berth-run/berth/internal/api/socket"
	"github.com/berth-run/berth/internal/base/limit"
	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/record/event"
	"github.com/berth-run/berth/internal/record/podlog"
)

// Pods is the table of this node's pods by name, with their status merged in. The writer puts the last
// state of a pod before it deletes the row, so that a watch can report that state with the deletion.
type Pods = store.Table[types.NamespacedName, *corev1.Pod]

// Events reads the events of this node (event.Recorder).
type Events interface {
	List(event.Filter) ([]corev1.Event, uint64)
	Watch(ctx context.Context, f event.Filter, since uint64) iter.Seq[corev1.Event]
}

// Options are the parts of the agent that the server needs. All are required unless they say otherwise.
type Options struct {
	// Socket is the path of the unix socket. The server creates a missing directory.
	Socket string
	// Ready is closed when the socket accepts connections. It may be nil.
	Ready chan<- struct{}
	Pods  *Pods
	// Settled is closed once Pods contains every pod of the node. Until then, but for at most settle.Time
	// after Started, a request about pods waits. nil means that Pods is complete.
	Settled   <-chan struct{}
	Events    Events
	Applier   Applier
	Explainer Explainer
	Objects   Objects
	Amender   Amender
	Images    Images
	Streams   Streams
	Files     Files
	// Checkpoints writes the state of containers.
	Checkpoints Checkpoints
	Info        nodeinfo.Info
	Past        past.Past
	Changes     live.Changes
	// LogDir holds the pods' log directories. Default: podlog.DefaultDir.
	LogDir string
	// Started is the start time of this process. Resource versions contain it, so they keep growing after a restart.
	Started time.Time
	Log     *slog.Logger
}

// Server serves the local API.
type Server struct {
	Options
	leases *leases
}

// New returns a server that Run starts.
func New(o Options) *Server {
	o.LogDir = cmp.Or(o.LogDir, podlog.DefaultDir)
	return &Server{Options: o, leases: newLeases(o)}
}

// shutdownGrace is how long running requests may take to finish when the agent ends. Watches and followed
// logs end at once.
const shutdownGrace = 2 * time.Second

// Run listens on the socket and serves until ctx ends. It returns an error if it cannot listen or if the
// listener fails, and nil after ctx has ended.
func (s *Server) Run(ctx context.Context) error {
	l, err := socket.Listen(ctx, s.Socket)
	switch {
	case errors.Is(err, context.Canceled):
		return nil
	case err != nil:
		return err
	}
	if s.Ready != nil {
		close(s.Ready)
	}
	s.Log.Info("local API is ready", "socket", s.Socket)
	return s.serve(ctx, l)
}

// bounds of the socket, which only root can open.
var bounds = limit.Bounds{Connections: 1000, Requests: 1000}

// errStopping is the cancellation cause of requests when the agent ends.
var errStopping = errors.New("the agent is stopping")

func (s *Server) serve(ctx context.Context, l net.Listener) error {
	base, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(errStopping)
	srv := &http.Server{
		Handler:           limit.Requests(s.Handler(), bounds, answer.RefuseTooMany),
		ReadHeaderTimeout: limit.Header,
		IdleTimeout:       limit.Idle,
		BaseContext:       func(net.Listener) context.Context { return base },
		ErrorLog:          slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug),
	}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(limit.Listener(l, bounds)) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve local API on %s: %w", s.Socket, err)
	case <-ctx.Done():
	}
	stop(errStopping)
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
	defer cancel()
	err := srv.Shutdown(last)
	served := <-failed // http.ErrServerClosed, at once
	if !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = srv.Close()
	}
	return err
}
