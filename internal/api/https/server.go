package https

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/berth-run/berth/internal/api/server"
	"github.com/berth-run/berth/internal/base/inflight"
	"github.com/berth-run/berth/internal/record/podlog"
)

// Access decides which requests are allowed (auth.Auth).
type Access interface {
	// Check returns nil if the sender of r may do verb on one of these subresources of the node. Otherwise
	// the error is an apierrors.APIStatus, and is the answer.
	Check(r *http.Request, verb string, subresources []string) error
	// ClientCAs returns the authorities to name when a client certificate is requested. It may be nil.
	ClientCAs() *x509.CertPool
}

// Runtime runs operations on a single container of a pod.
type Runtime interface {
	// Run runs a command until it ends and returns its standard output and error. An exit code other than 0
	// is an error.
	Run(ctx context.Context, p *corev1.Pod, container string, command []string) ([]byte, error)
	// Checkpoint writes the state of a running container to an archive at path (CRI CheckpointContainer). A
	// timeout of 0 is the runtime's default.
	Checkpoint(ctx context.Context, p *corev1.Pod, container, path string, timeout time.Duration) error
}

// Stats measures the resources that the node and its pods use.
type Stats interface {
	Summary(ctx context.Context, onlyCPUAndMemory bool) (*statsv1alpha1.Summary, error)
}

// Metrics are the handlers of the metrics paths. A nil handler answers 404.
type Metrics struct {
	Agent    http.Handler // /metrics
	CAdvisor http.Handler // /metrics/cadvisor
	Resource http.Handler // /metrics/resource
	Probes   http.Handler // /metrics/probes
}

// Addresses are the addresses to listen on, as host:port. An empty one is not served.
type Addresses struct {
	HTTPS    string // address:port
	ReadOnly string // address:readOnlyPort
	Healthz  string // healthzBindAddress:healthzPort
}

// Enabled holds the switches of the same names in KubeletConfiguration.
type Enabled struct {
	DebuggingHandlers, SystemLogHandler, SystemLogQuery     bool
	ProfilingHandler, ContentionProfiling, DebugFlagHandler bool
	// Checkpoint is the feature gate ContainerCheckpoint, WebSockets is ExtendWebSocketsToKubelet, and LogStreams is
	// PodLogsQuerySplitStreams.
	Checkpoint, WebSockets, LogStreams bool
}

// Dirs are directories of the node.
type Dirs struct {
	// PodLogs holds the pods' log directories. Default: podlog.DefaultDir.
	PodLogs string
	// SystemLogs is the directory that /logs/ shows. Default: /var/log.
	SystemLogs string
	// Checkpoints holds the checkpoints of containers. The first checkpoint creates it with mode 0700.
	Checkpoints string
}

// About is the agent's own state.
type About struct {
	// Version is the agent's release and Started is the start time of its process. /statusz shows both.
	Version string
	Started time.Time
	// Config is the configuration in effect, with kind and apiVersion.
	Config *kubeletconfigv1beta1.KubeletConfiguration
	// Flags are the flags of the command line by name, with their values in effect.
	Flags map[string]string
	// SetVerbosity sets the detail of the log as klog's -v does. 0 is the least detail.
	SetVerbosity func(v int)
	Health       Health
}

// Health is the state of the work on pods.
type Health interface {
	// Healthy returns the reason why the agent cannot sync its pods, or nil.
	Healthy(context.Context) error
	// Hanging describes each pod whose worker hangs. Other pods are not affected, so the agent is healthy.
	Hanging() []string
}

// Options are the parts of the agent that the server needs. All are required unless they say otherwise.
type Options struct {
	Addresses Addresses
	// TLS has the serving certificate, the versions and the cipher suites. The server adds the settings for
	// client certificates and protocols.
	TLS     *tls.Config
	Access  Access
	Enabled Enabled
	Dirs    Dirs
	About   About
	Pods    *server.Pods
	// Settled is closed once Pods contains every pod of the node. Until then, but for at most settle.Time, a
	// request about pods waits. nil means that Pods is complete.
	Settled <-chan struct{}
	Streams server.Streams
	Runtime Runtime
	Stats   Stats
	Metrics Metrics
	// StreamIdle is the time without traffic after which a stream into a pod is closed
	// (streamingConnectionIdleTimeout). 0 means never.
	StreamIdle time.Duration
	// Register receives the request counters.
	Register prometheus.Registerer
	Log      *slog.Logger
}

// Server serves the node's API to the cluster.
type Server struct {
	Options
	ready    chan struct{}
	bound    map[string]net.Addr
	requests *requests
	health   *health
	active   inflight.Gate // requests in progress, closed by Run at its end
}

// New returns a server that Run starts. It fails if its counters are already registered.
func New(o Options) (*Server, error) {
	o.Dirs.PodLogs = cmp.Or(o.Dirs.PodLogs, podlog.DefaultDir)
	o.Dirs.SystemLogs = cmp.Or(o.Dirs.SystemLogs, "/var/log")
	requests, err := newRequests(o.Register)
	if err != nil {
		return nil, err
	}
	s := &Server{Options: o, ready: make(chan struct{}), bound: map[string]net.Addr{}, requests: requests}
	s.health = newHealth(checks(o.About.Health))
	return s, nil
}

// Ready returns a channel that is closed when all addresses accept connections.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Addr returns the address that the server listens on for a configured one, or nil. It has the actual port
// if 0 was configured. Call it after Ready is closed.
func (s *Server) Addr(configured string) net.Addr { return s.bound[configured] }
