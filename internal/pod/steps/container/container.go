package container

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/steps/container/render"
)

// Lifecycle takes part in the life of every container of the node, from
// outside of its pod's spec: resource allocators and the operator's hooks. Each
// may be called again for the same container, also by another process; nil: there
// is nothing to do.
type Lifecycle struct {
	// PreCreate may change the configuration or refuse the container.
	PreCreate func(ctx context.Context, p *corev1.Pod, c pod.Container, config *runtimeapi.ContainerConfig) error
	// PreStart may refuse the start of what was created; it is removed then.
	PreStart func(ctx context.Context, p *corev1.Pod, c pod.Container, id string) error
	// PreStop and PostStop are around a stop. Their failures do not hold it up.
	PreStop  func(ctx context.Context, id string) error
	PostStop func(ctx context.Context, id string) error
}

// runtime are the calls that are made here.
type runtime interface {
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

// images brings a container's image. Its errors carry reasons.
type images interface {
	Ensure(ctx context.Context, p *corev1.Pod, c pod.Container) (*runtimeapi.Image, error)
}

// sandboxes knows in what the containers of a pod are created.
type sandboxes interface {
	Sandbox(uid types.UID) (id string, config *runtimeapi.PodSandboxConfig, ips []string, ok bool)
}

// volumes knows what is mounted for a pod, and where on the host that is
// which one volumeMount of a container shows.
type volumes interface {
	Mounted(uid types.UID) map[string]pod.Volume
	MountPath(ctx context.Context, p *corev1.Pod, container string, mountIndex int, subPath string) (path string,
		err error)
}

// dirs makes the files of a pod that its containers mount.
type dirs interface {
	// Hosts is the pod's /etc/hosts.
	Hosts(p *corev1.Pod, podIPs []string) (path string, err error)
	// TerminationLog is an empty file for one instance of a container.
	TerminationLog(p *corev1.Pod, container string, restartCount int) (path string, err error)
}

// observer reads a pod's state from the runtime before it returns.
type observer interface {
	Refresh(ctx context.Context, uid types.UID) error
}

type events interface {
	Event(ref corev1.ObjectReference, eventType, reason, format string, args ...any)
}

// gate bounds the number of expensive runtime calls under way on the node.
type gate interface {
	Enter(ctx context.Context) (leave func(), err error)
}

// Options are what Containers needs from its surroundings. All but Lifecycle,
// LegacyLogDir and Log are required.
type Options struct {
	Runtime   runtime
	Images    images
	Sandboxes sandboxes
	Volumes   volumes
	Dirs      dirs
	Objects   objects
	// Services are those that a pod is told of; nil: of none.
	Services func(*corev1.Pod) ([]*corev1.Service, error)
	// Lifecycle is called in this order.
	Lifecycle []Lifecycle
	Observer  observer
	Events    events
	// Limit is entered for the creation and start of a container.
	Limit gate
	// QOS is the pod's quality-of-service class.
	QOS func(*corev1.Pod) corev1.PodQOSClass
	// Node is what rendering needs to know of the node, now, and of the handler that
	// runs the pod.
	Node func(p *corev1.Pod) render.Node
	// LegacyLogDir gets a link to each container's log, for collectors that
	// look there; "" for none. The kubelet's is /var/log/containers.
	LegacyLogDir string
	Log          *slog.Logger
}

// Containers starts and stops the containers of a node. Its methods may be
// called from any goroutine.
type Containers struct {
	opts    Options
	http    *http.Client
	metrics metrics

	mu    sync.Mutex
	lives map[types.UID]*life
}

// life is what is remembered of a pod, by container name or id. It makes
// nothing right or wrong if it is lost with the process.
type life struct {
	failed   map[string]error         // name: how its last start failed
	starting map[string]bool          // name: it has a postStart handler that has not returned
	gates    map[string]chan struct{} // name: of its last start, closed when the next container may be created
	effects  map[string]effect        // name: what was done to the runtime last
	endings  map[string]*ending       // id: its stop under way, or interrupted
	// backedOff is the instance by container name whose back-off was told.
	backedOff map[string]string
	waits     map[string]func() // what containers wait for: ends the wait in the timeline
}

// New makes a Containers that has started nothing.
func New(o Options) *Containers {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Containers{opts: o, http: lifecycleClient(), metrics: newMetrics(), lives: map[types.UID]*life{}}
}

// Waiting tells why a container is not started: how the last try failed. It is
// cleared by a start that succeeds.
func (s *Containers) Waiting(uid types.UID, name string) (why, message string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lives[uid]
	if l == nil || l.failed[name] == nil {
		return "", "", false
	}
	return reason.Of(l.failed[name]), reason.Message(l.failed[name]), true
}

// Starting says that the container's start is not complete: it may run, and
// its postStart handler has not returned.
func (s *Containers) Starting(uid types.UID, name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lives[uid]
	return l != nil && l.starting[name]
}

// Forget drops what is remembered of a pod that is gone.
func (s *Containers) Forget(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.lives, uid)
}

// with gives f what is remembered of a pod, exclusively.
func (s *Containers) with(uid types.UID, f func(*life)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lives[uid]
	if l == nil {
		l = &life{
			failed: map[string]error{}, starting: map[string]bool{}, gates: map[string]chan struct{}{},
			effects: map[string]effect{}, endings: map[string]*ending{}, backedOff: map[string]string{},
			waits: map[string]func(){},
		}
		s.lives[uid] = l
	}
	f(l)
}

// settle is how long a call that changes the runtime may go on after the pod is
// to stop or the agent to end. Its outcome is worth waiting for: whoever comes
// next would meet it half done.
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

// changed notes what was done to a container and has the observed state show
// it. It must be the last thing a task does.
func (s *Containers) changed(ctx context.Context, uid types.UID, name string, e effect) error {
	e.at = time.Now()
	s.with(uid, func(l *life) { l.effects[name] = e })
	ctx, cancel := settled(ctx)
	defer cancel()
	return s.opts.Observer.Refresh(ctx, uid)
}

// podIPs are the addresses at which a pod's containers are reached.
func (s *Containers) podIPs(p *corev1.Pod, sandboxIPs []string) []string {
	if pod.HostNetwork(p) {
		return s.opts.Node(p).HostIPs
	}
	return sandboxIPs
}
