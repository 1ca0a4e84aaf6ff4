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

	"golang.org/x/sys/unix"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Options say what runs beside etcd and kube-apiserver, and how.
type Options struct {
	// Controllers starts kube-controller-manager: approves and signs certificates
	// of nodes, makes service accounts, collects garbage, taints silent nodes.
	Controllers bool
	// Scheduler starts kube-scheduler.
	Scheduler bool
	// APIServer and ControllerManager are more flags, after those of the package.
	APIServer, ControllerManager []string
}

// T is what a Cluster needs of a *testing.T.
type T interface {
	Helper()
	Logf(format string, args ...any)
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// Cluster is a control plane that runs, as one test sees it: what fails fails
// that test.
type Cluster struct {
	t       T
	servers *servers
}

// Start starts a control plane for one test. It takes some seconds: tests that
// do no harm to each other share one, see Shared.
func Start(t T, o Options) *Cluster {
	t.Helper()
	s, err := up(context.Background(), o)
	if err != nil {
		t.Fatalf("start cluster: %v", err)
	}
	return s.during(t)
}

// during is a cluster for one test, after which it is closed.
func (s *servers) during(t T) *Cluster {
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Fatalf("stop cluster: %v", err)
		}
	})
	return &Cluster{t: t, servers: s}
}

// Shared is one control plane for the tests of a package, started with the first
// that asks for it:
//
//	var shared = kubeapitest.NewShared(kubeapitest.Options{})
//
//	func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }
//
// Each test takes a namespace and nodes of its own in it.
type Shared struct {
	start func() (*servers, error)
	used  atomic.Bool
}

// NewShared starts nothing.
func NewShared(o Options) *Shared {
	s := &Shared{}
	s.start = sync.OnceValues(func() (*servers, error) {
		s.used.Store(true)
		return up(context.Background(), o)
	})
	return s
}

// Main runs the tests, then ends the control plane. It returns the exit status.
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

// Cluster is the control plane for one test.
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

// AdminConfig is for a client of the group system:masters. It goes straight to
// the API server: no fault of the proxy reaches it.
func (c *Cluster) AdminConfig() *rest.Config { return rest.CopyConfig(c.servers.admin) }

// Client is a client with AdminConfig.
func (c *Cluster) Client() kubernetes.Interface {
	c.t.Helper()
	client, err := kubernetes.NewForConfig(c.AdminConfig())
	c.check(err)
	return client
}

// AdminKubeconfig is the path of a file with AdminConfig.
func (c *Cluster) AdminKubeconfig() string { return c.servers.adminFile }

// Config is for a client with a new certificate for id, through the proxy.
func (c *Cluster) Config(id Identity) *rest.Config {
	c.t.Helper()
	config, err := c.servers.config(c.servers.nodes, id)
	c.check(err)
	return config
}

// Kubeconfig is the path of a new file with Config.
func (c *Cluster) Kubeconfig(id Identity) string {
	c.t.Helper()
	path, err := c.servers.fresh(id.User, c.Config(id))
	c.check(err)
	return path
}

// NodeConfig is Config for the node with this name.
func (c *Cluster) NodeConfig(name string) *rest.Config {
	c.t.Helper()
	return c.Config(Node(name))
}

// NodeKubeconfig is the path of a new file with NodeConfig.
func (c *Cluster) NodeKubeconfig(name string) string {
	c.t.Helper()
	return c.Kubeconfig(Node(name))
}

// BootstrapKubeconfig is the path of a file with a bootstrap token, through the
// proxy: its holder may ask for a certificate of a node, which is approved and
// signed where there are Controllers.
func (c *Cluster) BootstrapKubeconfig() string {
	c.t.Helper()
	path, err := c.servers.fresh("bootstrap", &rest.Config{
		Host: c.servers.nodes, BearerToken: tokenID + "." + tokenSecret,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.servers.ca.pem},
	})
	c.check(err)
	return path
}

// CA is the path of the authority's certificate: it signs clients, kube-apiserver
// and the serving certificates of nodes.
func (c *Cluster) CA() string { return filepath.Join(c.servers.dir, "ca.crt") }

// ServingCertificate makes a certificate for a node's server, with these DNS
// names and addresses, and returns the paths of it and its key.
func (c *Cluster) ServingCertificate(node string, hosts ...string) (cert, key string) {
	c.t.Helper()
	keys, err := c.servers.ca.server(pkix.Name{CommonName: "system:node:" + node,
		Organization: []string{"system:nodes"}}, hosts...)
	c.check(err)
	path := filepath.Join(c.servers.dir, c.servers.name(node))
	c.check(keys.write(path))
	return path + ".crt", path + ".key"
}

// Namespace makes a namespace with a service account "default". It stays as long
// as the cluster.
func (c *Cluster) Namespace() string {
	c.t.Helper()
	name := c.servers.name("test")
	c.check(c.servers.namespace(context.Background(), name))
	return name
}

// KubectlCommand is kubectl as admin, not started.
func (c *Cluster) KubectlCommand(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.servers.program, append([]string{"kubectl"}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.AdminKubeconfig(), "HOME="+c.servers.dir)
	return cmd
}

// Kubectl runs kubectl as admin and returns what it prints.
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

// Program is the path of the servers' program, which has kubectl and kubelet too.
func (c *Cluster) Program() string { return c.servers.program }

// KillAPIServer ends kube-apiserver as a crash does. StartAPIServer starts it at
// the same address and returns when it is ready.
func (c *Cluster) KillAPIServer() {
	c.t.Helper()
	c.check(c.servers.api.kill())
}

// StartAPIServer follows KillAPIServer.
func (c *Cluster) StartAPIServer() {
	c.t.Helper()
	c.check(c.servers.startAPI(context.Background()))
}

// Server is a part of the control plane that can be paused.
type Server int

// What a paused server does: without etcd the API server answers reads from memory,
// nothing else; the API server keeps its connections; without controllers nothing
// is signed, for one.
const (
	Etcd Server = iota
	APIServer
	Controllers
)

// Pause stops a server without an end of its connections, until Resume.
func (c *Cluster) Pause(s Server) { c.signal(s, unix.SIGSTOP) }

// Resume follows Pause.
func (c *Cluster) Resume(s Server) { c.signal(s, unix.SIGCONT) }

func (c *Cluster) signal(s Server, what unix.Signal) {
	c.t.Helper()
	c.check(
		map[Server]*process{Etcd: c.servers.etcd, APIServer: c.servers.api,
			Controllers: c.servers.controllers}[s].signal(what))
}

// CutConnections ends the connections of nodes, watches among them. They may
// connect again at once.
func (c *Cluster) CutConnections() { c.servers.front(c.t).drop() }

// Disconnect cuts nodes off until Connect; admin still reaches the API server.
func (c *Cluster) Disconnect() { c.servers.front(c.t).set(func() { c.servers.front(c.t).cut = true }) }

// Connect follows Disconnect.
func (c *Cluster) Connect() { c.servers.front(c.t).set(func() { c.servers.front(c.t).cut = false }) }

// Inject makes these the faults of the proxy: the first that matches answers a
// request of a node. Without an argument there are none. Connections of before
// are cut, so that all requests are seen.
func (c *Cluster) Inject(faults ...Fault) {
	c.servers.front(c.t).set(func() { c.servers.front(c.t).faults = slices.Clone(faults) })
}

// Spent says that each of the faults with a number of Times was given so often.
func (c *Cluster) Spent() bool { return c.servers.front(c.t).spent() }
