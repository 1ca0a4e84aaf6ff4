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

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/record/event"
	"github.com/berth-run/berth/internal/record/podlog"
	"github.com/berth-run/berth/internal/record/timeline"
)

// Pods is the table of this node's pods with their status merged in, by name.
// The row of a pod that ends for good is put with its last state before it is
// deleted: that state is what a watch tells of the deletion.
type Pods = store.Table[types.NamespacedName, *corev1.Pod]

// Events are what happened on this node (event.Recorder).
type Events interface {
	List(event.Filter) ([]corev1.Event, uint64)
	Watch(ctx context.Context, f event.Filter, since uint64) iter.Seq[corev1.Event]
}

// Applier changes what pods are wanted.
type Applier interface {
	// Apply takes one or more manifests, JSON or YAML, of pods and of what they
	// name. It changes nothing when any of them is bad. Results are in the order of the manifests.
	Apply(ctx context.Context, data []byte, opts ApplyOptions) ([]api.ApplyResult, error)
	// Delete asks for a pod's end and returns the pod as it then is. It does
	// not wait for the end.
	Delete(ctx context.Context, key types.NamespacedName, opts DeleteOptions) (*corev1.Pod, error)
}

// ApplyOptions say what pods an apply makes.
type ApplyOptions struct {
	// Origin names the manifests in messages.
	Origin string
	// Namespace of the pods that name none. When it is set, a pod that names
	// another is an error; when it is empty, it means "default".
	Namespace string
	// Keep makes the pods come back after a restart of the agent and a reboot.
	Keep bool
	// CreateOnly makes a pod that is there already an AlreadyExists error.
	CreateOnly bool
	// DryRun checks everything and changes nothing.
	DryRun bool
	// NamesOnly checks and changes nothing: it tells what the manifests name.
	NamesOnly bool
}

// DeleteOptions say how a pod is to end.
type DeleteOptions struct {
	// UID, when set, must be the pod's; another is a conflict.
	UID types.UID
	// Grace is the time the containers get. nil means the pod's own.
	Grace *time.Duration
}

// Amender changes pods in what can change while they run.
type Amender interface {
	// Resize asks for other CPU and memory of a container. What becomes of it is
	// told by the pod's status.
	Resize(ctx context.Context, key types.NamespacedName, r api.Resize) (*corev1.Pod, error)
	// AddEphemeral adds an ephemeral container.
	AddEphemeral(ctx context.Context, key types.NamespacedName, c corev1.EphemeralContainer) (*corev1.Pod, error)
	// SetCondition sets a condition that the agent does not compute, such as the
	// one of a readiness gate. Only type, status, reason and message are read.
	SetCondition(ctx context.Context, key types.NamespacedName, c corev1.PodCondition) (*corev1.Pod, error)
}

// Timelines has the recorded starts of pods (timeline.Recorder).
type Timelines interface {
	// Find returns the latest timeline of a pod of that name.
	Find(namespace, name string) (timeline.Timeline, bool)
	// List returns all timelines, oldest first, without their spans.
	List() []timeline.Timeline
}

// Node is the agent's own state.
type Node interface {
	Status(ctx context.Context) api.Status
	// Healthy returns what keeps the agent from working, or nil.
	Healthy(ctx context.Context) error
}

// Options are the parts that the server speaks for. All are required unless they say otherwise.
type Options struct {
	// Socket is the path of the unix socket; its directory is made if missing.
	Socket string
	Pods   *Pods
	// Settled is closed once Pods has held every pod of the node: until then a
	// request about pods waits, until settleTime after Started. nil: it has.
	Settled   <-chan struct{}
	Events    Events
	Applier   Applier
	Explainer Explainer
	Objects   Objects
	Amender   Amender
	Timelines Timelines
	Images    Images
	Streams   Streams
	Files     Files
	Node      Node
	Resources Resources
	Metrics   prometheus.Gatherer
	// LogDir holds the pods' log directories. Default: podlog.DefaultDir.
	LogDir string
	// Started is when this process did. It makes resource versions grow over restarts.
	Started time.Time
	Log     *slog.Logger
}

// Server serves the local API.
type Server struct {
	Options
	leases *leases
	ready  chan struct{}
}

// New returns a server that Run starts.
func New(o Options) *Server {
	o.LogDir = cmp.Or(o.LogDir, podlog.DefaultDir)
	return &Server{Options: o, leases: newLeases(), ready: make(chan struct{})}
}

// Ready is closed when the socket accepts connections.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// shutdownGrace is how long requests under way get when the agent ends. Watches
// and followed logs end at once.
const shutdownGrace = 2 * time.Second

// Run listens on the socket and serves until ctx ends. It returns an error when
// the socket cannot be had or fails, and nil after ctx.
func (s *Server) Run(ctx context.Context) error {
	l, err := Listen(s.Socket)
	if err != nil {
		return err
	}
	close(s.ready)
	s.Log.Info("local API is ready", "socket", s.Socket)
	return s.serve(ctx, l)
}

// errStopping is the cause with which requests end when the agent does.
var errStopping = errors.New("the agent stops")

func (s *Server) serve(ctx context.Context, l net.Listener) error {
	base, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(errStopping)
	srv := &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return base },
		ErrorLog:          slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug),
	}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }()
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
