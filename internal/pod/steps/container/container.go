package container

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/steps/container/handler"
	"github.com/berth-run/berth/internal/pod/steps/container/render"
	"github.com/berth-run/berth/internal/record/event"
)

// Lifecycle takes part in the life of every container of the node, from outside of its pod's spec: resource allocators
// and the operator's hooks. Each function may be called again for the same container, also by another process. A nil
// function does nothing.
type Lifecycle struct {
	// PreCreate may change the configuration or refuse the container.
	PreCreate func(ctx context.Context, p *corev1.Pod, c pod.Container, config *runtimeapi.ContainerConfig) error
	// PreStart may refuse the start of a created container, which is then removed.
	PreStart func(ctx context.Context, p *corev1.Pod, c pod.Container, id string) error
	// PreStop runs before a stop. PostStop runs when a container is gone, whether it was stopped or has ended by
	// itself, and before its next instance is created. If they fail, the work goes on.
	PreStop  func(ctx context.Context, id string) error
	PostStop func(ctx context.Context, id string) error
}

// runtime has the calls of the runtime service that this package makes.
type runtime interface {
	cri.SandboxStatuses
	CreateContainer(context.Context, *runtimeapi.CreateContainerRequest,
		...grpc.CallOption) (*runtimeapi.CreateContainerResponse, error)
	StartContainer(context.Context, *runtimeapi.StartContainerRequest,
		...grpc.CallOption) (*runtimeapi.StartContainerResponse, error)
	StopContainer(context.Context, *runtimeapi.StopContainerRequest,
		...grpc.CallOption) (*runtimeapi.StopContainerResponse, error)
	RemoveContainer(context.Context, *runtimeapi.RemoveContainerRequest,
		...grpc.CallOption) (*runtimeapi.RemoveContainerResponse, error)
	ExecSync(context.Context, *runtimeapi.ExecSyncRequest, ...grpc.CallOption) (*runtimeapi.ExecSyncResponse, error)
}

// images pulls a container's image if necessary. Its errors carry reasons.
type images interface {
	Ensure(ctx context.Context, p *corev1.Pod, c pod.Container) (*runtimeapi.Image, error)
}

// sandboxes returns the sandbox that the containers of a pod are created in.
type sandboxes interface {
	Sandbox(uid types.UID) (id string, config *runtimeapi.PodSandboxConfig, ips []string, ok bool)
}

// volumes returns the mounted volumes of a pod, and the host path that a volumeMount of a container shows.
type volumes interface {
	Mounted(uid types.UID) map[string]pod.Volume
	MountPath(ctx context.Context, p *corev1.Pod, container string, mountIndex int, subPath string) (path string,
		err error)
}

// dirs writes the files of a pod that its containers mount.
type dirs interface {
	// Hosts writes the pod's /etc/hosts.
	Hosts(p *corev1.Pod, podIPs []string) (path string, err error)
	// TerminationLog makes an empty file for one instance of a container.
	TerminationLog(p *corev1.Pod, container string, restartCount int) (path string, err error)
}

// observer reads a pod's state from the runtime before it returns.
type observer interface {
	Refresh(ctx context.Context, uid types.UID) error
	// Starting hides that the start of a container has failed, until judged is called.
	Starting(id string) (judged func())
}

// replacements remembers containers that are stopped to be replaced, also for the next agent.
type replacements interface {
	// Replace records that a container instance must start again after its stop.
	Replace(uid types.UID, container, id string) error
}

// gate limits the number of expensive runtime calls that run on the node at the same time. leave may be called again.
type gate interface {
	Enter(ctx context.Context, pod *corev1.Pod) (leave func(), err error)
}

// services knows the services of a cluster.
type services interface {
	// Services returns the services whose addresses a pod gets as environment variables.
	Services(*corev1.Pod) ([]*corev1.Service, error)
}

// addresses knows the current addresses of the node.
type addresses interface {
	// HostIPs returns the addresses that pods see, the primary one first.
	HostIPs() []string
}

// handlers knows the runtime handlers.
type handlers interface {
	// RecursiveReadOnly reports whether the runtime handler of a pod supports recursive read-only mounts.
	RecursiveReadOnly(*corev1.Pod) bool
}

// Options holds the dependencies and settings of Containers. Services, Handlers, Lifecycle, LegacyLogDir and Log are
// optional.
type Options struct {
	Runtime   runtime
	Images    images
	Sandboxes sandboxes
	Volumes   volumes
	Dirs      dirs
	Objects   objects
	Services  services
	// Lifecycle lists the participants in the order of the calls.
	Lifecycle []Lifecycle
	Observer  observer
	// Replacements remembers which containers must start again after their stop.
	Replacements replacements
	Events       event.Sink
	// Limit is entered before a container is created, and left after it was started.
	Limit gate
	// Kills is entered before the stop signal to a container without a grace period, and left when it has ended.
	Kills gate
	// Node has the properties of the node for rendering, without its addresses and the properties of a pod's runtime
	// handler.
	Node      render.Node
	Addresses addresses
	Handlers  handlers
	// LegacyLogDir gets a link to each container's log, for collectors that look there. The kubelet's is
	// /var/log/containers. Empty means no links.
	LegacyLogDir string
	Log          *slog.Logger
}

// Containers starts and stops the containers of a node. Its methods may be
// called from any goroutine.
type Containers struct {
	opts     Options
	handlers *handler.Runner
	metrics  metrics

	mu    sync.Mutex
	lives map[types.UID]*life
}

// life is the memory of Containers about one pod, by container name or id. Losing it with the process is harmless.
type life struct {
	failed    map[string]error         // name: the error of its last start
	starting  map[string]bool          // name: its postStart handler has not returned yet
	gates     map[string]chan struct{} // name: gate of its last start, closed when the next container may be created
	effects   map[string]effect        // name: the last change that was made in the runtime
	endings   map[string]*ending       // id: the progress of a stop that runs or was interrupted
	released  map[string]bool          // id: PostStop has run
	backedOff map[string]backOff       // name: the last event about its delayed restart
	waits     map[string]func()        // by the cause of the wait: ends the wait in the timeline
}

// New returns a Containers that has started nothing.
func New(o Options) *Containers {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Containers{opts: o, handlers: handler.New(o.Runtime, o.Events), metrics: newMetrics(),
		lives: map[types.UID]*life{}}
}

// Waiting returns why a container is not started: the reason and message of its last failed start. A successful start
// clears it.
func (s *Containers) Waiting(uid types.UID, name string) (why, message string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lives[uid]
	if l == nil || l.failed[name] == nil {
		return "", "", false
	}
	return reason.Of(l.failed[name]), reason.Message(l.failed[name]), true
}

// Starting reports whether the container's start is incomplete: it may run already, but its postStart handler has not
// returned.
func (s *Containers) Starting(uid types.UID, name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lives[uid]
	return l != nil && l.starting[name]
}

// Forget drops the memory of a removed pod.
func (s *Containers) Forget(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.lives, uid)
}

// with calls f with the memory of a pod, under the lock.
func (s *Containers) with(uid types.UID, f func(*life)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lives[uid]
	if l == nil {
		l = &life{
			failed: map[string]error{}, starting: map[string]bool{}, gates: map[string]chan struct{}{},
			effects: map[string]effect{}, endings: map[string]*ending{}, released: map[string]bool{},
			backedOff: map[string]backOff{},
			waits:     map[string]func(){},
		}
		s.lives[uid] = l
	}
	f(l)
}

// settle is how long a call that changes the runtime may go on after its context has ended. Cancelling it at once would
// leave a half-done change for the next call.
const settle = 10 * time.Second

// settled returns a context that ends settle after ctx does.
func settled(ctx context.Context) (context.Context, context.CancelFunc) {
	out, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-time.After(settle):
			cancel()
		case <-out.Done():
		}
	})
	return out, func() {
		stop()
		cancel()
	}
}

// changed records an effect on a container and refreshes the observed state, which then shows it. It must be the last
// thing that a task does.
func (s *Containers) changed(ctx context.Context, uid types.UID, name string, e effect) error {
	e.at = time.Now()
	s.with(uid, func(l *life) { l.effects[name] = e })
	ctx, cancel := settled(ctx)
	defer cancel()
	return s.opts.Observer.Refresh(ctx, uid)
}

// podIPs returns the addresses of a pod's containers, in the order of its status.
func (s *Containers) podIPs(p *corev1.Pod, sandboxIPs []string) []string {
	return pod.IPs(p, sandboxIPs, s.opts.Addresses.HostIPs())
}
