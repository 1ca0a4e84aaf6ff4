package attach

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
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
	// Pipes returns the FIFOs of a container by file descriptor: standard input, which may be missing, and the copies
	// of standard output and standard error. ok is false for a container without them.
	Pipes(ctx context.Context, id string) (paths [3]string, ok bool)
	Get(ctx context.Context, id string) (runtime.Task, error)
}

// Server answers Attach calls and serves their streams.
type Server struct {
	containers Containers
	tasks      Tasks
	namespace  string // of the containers, in containerd
	streams    *streamserver.Server
	waits      context.Context // waits for the ends of containers until the end of Run
	stop       context.CancelFunc

	mu     sync.Mutex
	open   map[string]*output       // by path of the FIFO
	inputs map[*os.File]bool        // the clients' ends of inputs
	ends   map[string]chan struct{} // closed when a container has ended, by ID
}

// New makes a Server. It cannot answer before Listen.
func New(containers Containers, tasks Tasks, namespace string) *Server {
	s := &Server{containers: containers, tasks: tasks, namespace: namespace, open: map[string]*output{},
		inputs: map[*os.File]bool{}, ends: map[string]chan struct{}{}}
	s.waits, s.stop = context.WithCancel(namespaces.WithNamespace(context.Background(), namespace))
	return s
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
func (s *Server) Run(ctx context.Context) error {
	defer s.stop()
	return s.streams.Run(ctx)
}

// Handle answers an Attach call for a container with FIFOs. ok is false for all other calls, and for a container that
// does not run: containerd's answer says why.
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

// find returns the whole ID of a running container with FIFOs. The caller's may be the start of it.
func (s *Server) find(ctx context.Context, start string) (id string, ok bool) {
	found, err := s.containers.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: start})
	if err != nil || found.GetStatus().GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return "", false
	}
	id = found.GetStatus().GetId()
	_, ok = s.tasks.Pipes(ctx, id)
	return id, ok
}

// Attach implements streaming.Runtime. It copies the output of a container to a client, from now until the output ends
// or the client leaves. Input and sizes of the terminal reach the container only then, so that the client sees what
// they lead to.
func (s *Server) Attach(ctx context.Context, id string, stdin io.Reader, stdout, stderr io.WriteCloser, terminal bool,
	sizes <-chan remotecommand.TerminalSize) error {
	ctx, leave := context.WithCancelCause(namespaces.WithNamespace(ctx, s.namespace))
	defer leave(nil)
	task, err := s.tasks.Get(ctx, id)
	if err != nil {
		return fmt.Errorf("attach to container %s: %w", id, err)
	}
	paths, ok := s.tasks.Pipes(ctx, id)
	if !ok {
		return fmt.Errorf("attach to container %s: it has ended", id)
	}
	var clients []*client
	for i, to := range []io.WriteCloser{stdout, stderr} {
		if to == nil {
			continue
		}
		c, err := s.join(paths[i+1], to)
		if err != nil {
			return fmt.Errorf("attach to container %s: %w", id, err)
		}
		defer s.leave(c)
		clients = append(clients, c)
	}
	ended := s.end(id, task, paths[1:])
	go follow(ctx, sizes, task)
	if stdin != nil {
		switch to, err := s.openInput(paths[0]); {
		case err == nil:
			defer s.closeInput(to)
			go func() {
				if leaves, err := s.send(ctx, container{id, task, terminal}, stdin, to); leaves {
					leave(err)
				}
			}()
		case !errors.Is(err, fs.ErrNotExist): // without an input, the client gets the output
			return fmt.Errorf("attach to container %s: %w", id, err)
		}
	}
	for _, c := range clients {
		select {
		case <-c.done:
		case <-ctx.Done():
		}
	}
	if len(clients) == 0 {
		select {
		case <-ended:
		case <-ctx.Done():
		}
	}
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("attach to container %s: %w", id, err)
	}
	return nil
}

// end returns a channel that is closed when a container has ended. The outputs then end too, when the shim has ended
// them. One goroutine waits for all clients of a container, until the container ends: the shim does not notice that a
// call is over, and would answer each of them.
func (s *Server) end(id string, task runtime.Task, outputs []string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ended, ok := s.ends[id]; ok {
		return ended
	}
	ended := make(chan struct{})
	s.ends[id] = ended
	go func() {
		if _, _ = task.Wait(s.waits); s.waits.Err() != nil { // without an error or with one, for a task that is gone
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.ends, id)
		s.finish(outputs)
		close(ended)
	}()
	return ended
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
