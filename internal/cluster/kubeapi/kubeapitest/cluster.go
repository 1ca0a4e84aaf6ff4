package kubeapitest

import (
	"bytes"
	"context"
	"crypto/x509/pkix"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/berth-run/berth/internal/base/pausetest"
)

// Options selects the servers beside etcd and kube-apiserver, and their flags.
type Options struct {
	// Controllers starts kube-controller-manager. It approves and signs certificates of nodes, makes service accounts,
	// collects garbage, and taints nodes that are silent.
	Controllers bool
	// Scheduler starts kube-scheduler.
	Scheduler bool
	// APIServer and ControllerManager are additional flags. They follow the flags that the package sets.
	APIServer, ControllerManager []string
}

// T is the part of *testing.T that a Cluster needs.
type T interface {
	Helper()
	Logf(format string, args ...any)
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// Cluster is a running control plane for one test. Its failures fail that test.
type Cluster struct {
	t       T
	servers *servers
}

// Start starts a control plane for one test. It takes some seconds. Tests that do not disturb each other share one, see
// Shared.
func Start(t T, o Options) *Cluster {
	t.Helper()
	s, err := up(context.Background(), o)
	if err != nil {
		t.Fatalf("start cluster: %v", err)
	}
	return s.during(t)
}

// during returns a cluster for one test. It is closed after the test.
func (s *servers) during(t T) *Cluster {
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Fatalf("stop cluster: %v", err)
		}
	})
	return &Cluster{t: t, servers: s}
}

// Shared is one control plane for the tests of a package. The first test that needs it starts it:
//
//	var shared = kubeapitest.NewShared(kubeapitest.Options{})
//
//	func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }
//
// Each test uses its own namespace and nodes.
type Shared struct {
	start func() (*servers, error)
	used  atomic.Bool
}

// NewShared returns a Shared. It starts nothing.
func NewShared(o Options) *Shared {
	s := &Shared{}
	s.start = sync.OnceValues(func() (*servers, error) {
		s.used.Store(true)
		return up(context.Background(), o)
	})
	return s
}

// Main runs the tests, and then ends the control plane. It returns the exit status.
func (s *Shared) Main(m *testing.M) int {
	code := m.Run()
	if !s.used.Load() {
		return code
	}
	if servers, err := s.start(); err == nil {
		if err := servers.close(); err != nil {
			fmt.Fprintln(os.Stderr, "stop cluster:", err)
			return 1
		}
	}
	return code
}

// Cluster returns the control plane for one test.
func (s *Shared) Cluster(t T) *Cluster {
	t.Helper()
	servers, err := s.start()
	if err != nil {
		t.Fatalf("start cluster: %v", err)
	}
	return &Cluster{t: t, servers: servers}
}

func (c *Cluster) check(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatalf("cluster: %v", err)
	}
}

// AdminConfig returns the configuration of a client in the group system:masters. It connects directly to the API
// server, so that faults of the proxy do not affect it.
func (c *Cluster) AdminConfig() *rest.Config { return rest.CopyConfig(c.servers.admin) }

// Client returns a client with AdminConfig.
func (c *Cluster) Client() kubernetes.Interface {
	c.t.Helper()
	client, err := kubernetes.NewForConfig(c.AdminConfig())
	c.check(err)
	return client
}

// AdminKubeconfig returns the path of a file with AdminConfig.
func (c *Cluster) AdminKubeconfig() string { return c.servers.adminFile }

// Config returns the configuration of a client with a new certificate for id. It connects through the proxy.
func (c *Cluster) Config(id Identity) *rest.Config {
	c.t.Helper()
	config, err := c.servers.config(c.servers.nodes, id)
	c.check(err)
	return config
}

// Kubeconfig returns the path of a new file with Config.
func (c *Cluster) Kubeconfig(id Identity) string {
	c.t.Helper()
	path, err := c.servers.newFile(id.User, c.Config(id))
	c.check(err)
	return path
}

// NodeConfig returns Config for the node with this name.
func (c *Cluster) NodeConfig(name string) *rest.Config {
	c.t.Helper()
	return c.Config(Node(name))
}

// NodeKubeconfig returns the path of a new file with NodeConfig.
func (c *Cluster) NodeKubeconfig(name string) string {
	c.t.Helper()
	return c.Kubeconfig(Node(name))
}

// BootstrapKubeconfig returns the path of a file with a bootstrap token. It connects through the proxy. Its user may
// request a certificate of a node, which is approved and signed if there are Controllers.
func (c *Cluster) BootstrapKubeconfig() string {
	c.t.Helper()
	path, err := c.servers.newFile("bootstrap", &rest.Config{
		Host: c.servers.nodes, BearerToken: tokenID + "." + tokenSecret,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.servers.ca.pem},
	})
	c.check(err)
	return path
}

// CA returns the path of the authority's certificate. The authority signs clients, kube-apiserver and the serving
// certificates of nodes.
func (c *Cluster) CA() string { return filepath.Join(c.servers.dir, "ca.crt") }

// ServingCertificate makes a certificate for a node's server with these DNS names and addresses. It returns the paths
// of the certificate and its key.
func (c *Cluster) ServingCertificate(node string, hosts ...string) (cert, key string) {
	c.t.Helper()
	keys, err := c.servers.ca.server(pkix.Name{CommonName: "system:node:" + node,
		Organization: []string{"system:nodes"}}, hosts...)
	c.check(err)
	path := filepath.Join(c.servers.dir, c.servers.name(node))
	c.check(keys.write(path))
	return path + ".crt", path + ".key"
}

// Namespace makes a namespace with a service account "default". It exists as long as the cluster.
func (c *Cluster) Namespace() string {
	c.t.Helper()
	name := c.servers.name("test")
	c.check(c.servers.namespace(context.Background(), name))
	return name
}

// KubectlCommand returns a kubectl command with the administrator's rights. It does not start it.
func (c *Cluster) KubectlCommand(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.servers.program, append([]string{"kubectl"}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.AdminKubeconfig(), "HOME="+c.servers.dir)
	return cmd
}

// Kubectl runs kubectl with the administrator's rights and returns its output.
func (c *Cluster) Kubectl(args ...string) string {
	c.t.Helper()
	cmd := c.KubectlCommand(context.Background(), args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		c.t.Fatalf("kubectl %s: %v\n%s%s", strings.Join(args, " "), err, out, stderr.Bytes())
	}
	return string(out)
}

// Program returns the path of the servers' program, which also contains kubectl and kubelet.
func (c *Cluster) Program() string { return c.servers.program }

// KillAPIServer ends kube-apiserver like a crash, after the controllers have found it.
func (c *Cluster) KillAPIServer() {
	c.t.Helper()
	c.check(c.servers.controlled(context.Background()))
	c.check(c.servers.api.kill())
}

// StartAPIServer starts kube-apiserver again at the same address after KillAPIServer. It returns when the server is
// ready.
func (c *Cluster) StartAPIServer() {
	c.t.Helper()
	c.check(c.servers.startAPI(context.Background()))
}

// Server is a server that can be paused.
type Server int

// The effect of a pause. Without etcd the API server answers only reads from memory. A paused API server keeps its
// connections. Without controllers, for example, no certificate is signed.
const (
	Etcd Server = iota
	APIServer
	Controllers
)

// Pause stops a server until Resume, and returns when it has stopped. Its connections stay open.
func (c *Cluster) Pause(s Server) {
	c.t.Helper()
	c.check(c.process(s).do(pausetest.Pause))
}

// Resume continues a server after Pause.
func (c *Cluster) Resume(s Server) {
	c.t.Helper()
	c.check(c.process(s).do(pausetest.Resume))
}

func (c *Cluster) process(s Server) *process {
	return map[Server]*process{Etcd: c.servers.etcd, APIServer: c.servers.api,
		Controllers: c.servers.controllers}[s]
}

// CutConnections closes the connections of nodes, including watches. Nodes can connect again at once.
func (c *Cluster) CutConnections() { c.servers.front(c.t).drop() }

// Disconnect cuts off the nodes until Connect. The administrator still reaches the API server.
func (c *Cluster) Disconnect() { c.servers.front(c.t).set(func() { c.servers.front(c.t).cut = true }) }

// Connect ends Disconnect.
func (c *Cluster) Connect() { c.servers.front(c.t).set(func() { c.servers.front(c.t).cut = false }) }

// Inject sets the faults of the proxy: the first one that matches a request of a node answers it. Without arguments
// there are no faults. Existing connections are cut, so that the proxy sees all requests.
func (c *Cluster) Inject(faults ...Fault) {
	c.servers.front(c.t).set(func() { c.servers.front(c.t).faults = slices.Clone(faults) })
}

// Spent reports whether each fault with a number of Times was used that often.
func (c *Cluster) Spent() bool { return c.servers.front(c.t).spent() }
