package attach

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/containerd/containerd/v2/core/runtime"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"github.com/berth-run/berth/internal/base/streamserver"
)

// Containers is the part of the CRI plugin that knows the containers.
type Containers interface {
	ContainerStatus(ctx context.Context,
		r *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error)
}

// Tasks has the processes of the containers.
type Tasks interface {
	// Copies returns the FIFOs with a copy of a container's standard output and standard error. ok is false for a
	// container without them.
	Copies(ctx context.Context, id string) (paths []string, ok bool)
	Get(ctx context.Context, id string) (runtime.Task, error)
}

// Server answers Attach calls and serves their streams.
type Server struct {
	containers Containers
	tasks      Tasks
	namespace  string // of the containers, in containerd
	streams    *streamserver.Server

	mu   sync.Mutex
	open map[string]*output // by path of the FIFO
}

// New makes a Server. It cannot answer before Listen.
func New(containers Containers, tasks Tasks, namespace string) *Server {
	return &Server{containers: containers, tasks: tasks, namespace: namespace, open: map[string]*output{}}
}

// Listen opens a port for the streams, on an IP address of this machine. Run serves it.
func (s *Server) Listen(ctx context.Context, address string) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		return fmt.Errorf("listen for attached clients: %w", err)
	}
	if s.streams, err = streamserver.New(s, listener); err != nil {
		return errors.Join(err, listener.Close())
	}
	return nil
}

// Run serves streams until ctx ends.
func (s *Server) Run(ctx context.Context) error { return s.streams.Run(ctx) }

// Handle answers an Attach call for a container whose output the shim copies. ok is false for all other calls, and for
// a container that does not run: containerd's answer says why.
func (s *Server) Handle(ctx context.Context, req any) (answer *runtimeapi.AttachResponse, ok bool, err error) {
	r, isAttach := req.(*runtimeapi.AttachRequest)
	if !isAttach || s.streams == nil {
		return nil, false, nil
	}
	ctx = namespaces.WithNamespace(ctx, s.namespace)
	id, ok := s.find(ctx, r.GetContainerId())
	if !ok {
		return nil, false, nil
	}
	r = proto.CloneOf(r)
	r.ContainerId = id
	answer, err = s.streams.GetAttach(r)
	return answer, true, err
}

// find returns the whole ID of a running container whose output the shim copies. The caller's may be the start of it.
func (s *Server) find(ctx context.Context, start string) (id string, ok bool) {
	found, err := s.containers.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: start})
	if err != nil || found.GetStatus().GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return "", false
	}
	id = found.GetStatus().GetId()
	_, ok = s.tasks.Copies(ctx, id)
	return id, ok
}

// Attach implements streaming.Runtime. It copies the output of a container to a client, from now until it ends or the
// client does not take it. The container has no standard input and no terminal.
func (s *Server) Attach(ctx context.Context, id string, _ io.Reader, stdout, stderr io.WriteCloser, _ bool,
	_ <-chan remotecommand.TerminalSize) error {
	ctx, cancel := context.WithCancel(namespaces.WithNamespace(ctx, s.namespace))
	defer cancel()
	task, err := s.tasks.Get(ctx, id)
	if err != nil {
		return fmt.Errorf("attach to container %s: %w", id, err)
	}
	paths, ok := s.tasks.Copies(ctx, id)
	if !ok {
		return fmt.Errorf("attach to container %s: it has ended", id)
	}
	var clients []*client
	for i, to := range []io.WriteCloser{stdout, stderr} {
		if to == nil {
			continue
		}
		c, err := s.join(paths[i], to)
		if err != nil {
			return fmt.Errorf("attach to container %s: %w", id, err)
		}
		defer s.leave(c)
		clients = append(clients, c)
	}
	go func() {
		if _, _ = task.Wait(ctx); ctx.Err() == nil { // also if the task is gone
			s.finish(paths)
		}
	}()
	for _, c := range clients {
		select {
		case <-c.done:
		case <-ctx.Done():
		}
	}
	return nil
}

// errOther answers calls for which this server has no URLs.
var errOther = errors.New("the server of attached clients has no other streams")

// Exec implements streaming.Runtime.
func (*Server) Exec(context.Context, string, []string, io.Reader, io.WriteCloser, io.WriteCloser, bool,
	<-chan remotecommand.TerminalSize) error {
	return errOther
}

// PortForward implements streaming.Runtime.
func (*Server) PortForward(context.Context, string, int32, io.ReadWriteCloser) error { return errOther }
