package https

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/berth-run/berth/internal/api/server"
	"github.com/berth-run/berth/internal/record/podlog"
)

// Access says who may ask for what (auth.Auth).
type Access interface {
	// Check returns nil when the sender of r may do verb on one of these
	// subresources of the node. The error is the answer: an apierrors.APIStatus.
	Check(r *http.Request, verb string, subresources []string) error
	// ClientCAs are told to clients that are asked for a certificate. May be nil.
	ClientCAs() *x509.CertPool
}

// Runtime does what is asked of a single container, which is one of the pod's.
type Runtime interface {
	// Run runs a command to its end and returns what it wrote to standard output
	// and error. An exit code other than 0 is an error.
	Run(ctx context.Context, p *corev1.Pod, container string, command []string) ([]byte, error)
	// Checkpoint writes the state of a running container to an archive at path
	// (CRI CheckpointContainer). A timeout of 0 is the runtime's own.
	Checkpoint(ctx context.Context, p *corev1.Pod, container, path string, timeout time.Duration) error
}

// Stats is what the node and its pods use.
type Stats interface {
	Summary(ctx context.Context, onlyCPUAndMemory bool) (*statsv1alpha1.Summary, error)
}

// Metrics are what is scraped, by path. A nil one is not served: 404.
type Metrics struct {
	Agent    http.Handler // /metrics
	CAdvisor http.Handler // /metrics/cadvisor
	Resource http.Handler // /metrics/resource
	Probes   http.Handler // /metrics/probes
}

// Addresses are where to listen, as host:port. An empty one is not listened on.
type Addresses struct {
	HTTPS    string // address:port
	ReadOnly string // address:readOnlyPort
	Healthz  string // healthzBindAddress:healthzPort
}

// Enabled are the switches of KubeletConfiguration of the same names.
type Enabled struct {
	DebuggingHandlers, SystemLogHandler, SystemLogQuery     bool
	ProfilingHandler, ContentionProfiling, DebugFlagHandler bool
}

// Dirs are directories of the node.
type Dirs struct {
	// PodLogs holds the pods' log directories. Default: podlog.DefaultDir.
	PodLogs string
	// SystemLogs is what /logs/ shows. Default: /var/log.
	SystemLogs string
	// Checkpoints is where checkpoints of containers go; made with mode 0700
	// when the first is asked for.
	Checkpoints string
}

// About is what the agent tells of itself.
type About struct {
	// Version of the agent and Started, the time its process began, are shown by /statusz.
	Version string
	Started time.Time
	// Config is the configuration in effect, with kind and apiVersion.
	Config func() *kubeletconfigv1beta1.KubeletConfiguration
	// Flags are the command line's, by name, with their values in effect.
	Flags func() map[string]string
	// SetVerbosity sets the detail of the log as klog's -v does: 0 is least.
	SetVerbosity func(v int)
	// SyncLoop returns what keeps the agent from looking after its pods, or nil.
	SyncLoop func(context.Context) error
}

// Options are the parts that the server speaks for. All are required unless they say otherwise.
type Options struct {
	Addresses Addresses
	// TLS has the serving certificate, the versions and the cipher suites. What
	// concerns clients and protocols is set here.
	TLS     *tls.Config
	Access  Access
	Enabled Enabled
	Dirs    Dirs
	About   About
	Pods    *server.Pods
	// Settled is closed once Pods has held every pod of the node: until then a
	// request about pods waits, for at most settleTime. nil: it has.
	Settled <-chan struct{}
	Streams server.Streams
	Runtime Runtime
	Stats   Stats
	Metrics Metrics
	// StreamIdle is after how long without a byte a stream into a pod is closed
	// (streamingConnectionIdleTimeout). 0: never.
	StreamIdle time.Duration
	// Register takes the counters of requests.
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
	active   sync.WaitGroup
}

// New returns a server that Run starts. It fails when its counters are
// registered already.
func New(o Options) (*Server, error) {
	o.Dirs.PodLogs = cmp.Or(o.Dirs.PodLogs, podlog.DefaultDir)
	o.Dirs.SystemLogs = cmp.Or(o.Dirs.SystemLogs, "/var/log")
	requests, err := newRequests(o.Register)
	if err != nil {
		return nil, err
	}
	s := &Server{Options: o, ready: make(chan struct{}), bound: map[string]net.Addr{}, requests: requests}
	s.health = newHealth(s.checks())
	return s, nil
}

// Ready is closed when all addresses accept connections.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Addr is where a configured address is listened on, once Ready is closed: it
// tells the port where 0 was given. nil: not at all.
func (s *Server) Addr(configured string) net.Addr { return s.bound[configured] }
