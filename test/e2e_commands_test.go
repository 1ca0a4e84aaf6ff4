package test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-run/berth/internal/cluster/kubeapi/kubeapitest"
	"github.com/berth-run/berth/internal/cluster/podcert/podcerttest"
	"github.com/berth-run/berth/internal/node/machine"
	"github.com/berth-run/berth/internal/node/resource/state"
	"github.com/berth-run/berth/test/kubelet"
)

// node is the node of a script: its cluster, and the programs that run on it beside the agent.
type node struct {
	cluster *kubeapitest.Cluster // nil unless it runs
	client  kubernetes.Interface
	stop    func()
	address string
	kubelet *kubelet.Kubelet
	drivers map[string]*csiDriver
	signer  *podcerttest.Signer // nil before "signer start"
}

type nodeKey struct{}

func nodeOf(ts *testscript.TestScript) *node {
	n := ts.Value(nodeKey{}).(*node)
	if n.cluster == nil {
		ts.Fatalf("the cluster does not run; next: begin with the command \"cluster start\"")
	}
	return n
}

// scriptT makes a script usable as a kubeapitest.T.
type scriptT struct {
	*testscript.TestScript
	cleanups []func()
}

func (*scriptT) Helper()            {}
func (s *scriptT) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

// end runs the cleanups. A second call does nothing.
func (s *scriptT) end() {
	for _, f := range s.cleanups {
		f()
	}
	s.cleanups = nil
}

func (h *harness) clusterCommand(ts *testscript.TestScript, args []string) {
	n := ts.Value(nodeKey{}).(*node)
	switch {
	case args[0] == "start" && n.cluster == nil:
	case args[0] == "stop" && n.cluster != nil:
		n.stop()
		n.cluster = nil
		return
	default:
		ts.Fatalf("cluster %s: unknown action, or the cluster is in this state already", args[0])
	}
	t := &scriptT{TestScript: ts}
	ts.Defer(t.end)
	n.cluster = startCluster(t, args[1:])
	n.client, n.stop = n.cluster.Client(), t.end
	var err error
	n.address, err = kubelet.HostAddress()
	ts.Check(err)
	port := nodePortBase + ts.Value(daemonKey{}).(*daemon).place
	ts.Check(appendTo(ts.Getenv("CONFIG"), joinedConfig(n.cluster, n.address, port)+
		"staticPodPath: "+rootOf(ts)+"/manifests\n"))
	ts.Setenv("KUBECONFIG", n.cluster.AdminKubeconfig())
	ts.Setenv("SERVER", n.cluster.AdminConfig().Host)
	ts.Setenv("NODE_IP", n.address)
	ts.Setenv("NODE", n.cluster.NodeKubeconfig(nodeName))
	ts.Setenv("BOOTSTRAP", n.cluster.BootstrapKubeconfig())
	tools := ts.MkAbs("tools")
	ts.Check(os.MkdirAll(tools, 0o755))
	ts.Check(os.WriteFile(filepath.Join(tools, "kubectl"),
		fmt.Appendf(nil, "#!/bin/sh\nexec %s kubectl \"$@\"\n", n.cluster.Program()), 0o755))
	ts.Setenv("PATH", tools+":"+ts.Getenv("PATH"))
}

// joinedConfig has the lines of the configuration that an agent or kubelet needs on a node of the cluster.
func joinedConfig(c *kubeapitest.Cluster, address string, port int) string {
	cert, key := c.ServingCertificate(nodeName, address, nodeName)
	return fmt.Sprintf(`port: %d
healthzPort: 0
failSwapOn: false
failCgroupV1: false
cgroupDriver: cgroupfs
tlsCertFile: %s
tlsPrivateKeyFile: %s
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: %s}}
authorization: {mode: Webhook}
`, port, cert, key, c.CA())
}

func appendTo(path, text string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

func (h *harness) join(ts *testscript.TestScript, args []string) {
	n := nodeOf(ts)
	h.agent(ts, append([]string{"start", "--kubeconfig", ts.Getenv("NODE"), "--node-ip", n.address}, args...))
	awaitNodeReady(ts, []string{"True"})
}

// kubelet runs the real kubelet, for comparison, on the agent's root directory and runtime. It makes no rules for
// packets, because it shares the machine with other tests.
func (h *harness) kubelet(ts *testscript.TestScript, args []string) {
	n := nodeOf(ts)
	switch args[0] {
	case "start":
		config, err := os.ReadFile(ts.Getenv("CONFIG"))
		ts.Check(err)
		path := ts.MkAbs("kubelet.yaml")
		ts.Check(os.WriteFile(path, append(config, "makeIPTablesUtilChains: false\n"...), 0o600))
		h.knowMemory(ts)
		log, err := os.OpenFile(ts.MkAbs("agent.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		ts.Check(err)
		defer log.Close()
		began := time.Now()
		n.kubelet, err = kubelet.Start(kubelet.Options{
			Program: n.cluster.Program(), Config: path, CgroupRoot: ts.Getenv("CGROUP"), Kubeconfig: ts.Getenv("NODE"),
			Root: rootOf(ts), Plugins: ts.MkAbs("plugins"), Node: nodeName, Address: n.address, Log: log,
			Devices: len(args) > 1 && args[1] == "devices",
		})
		ts.Check(err)
		ts.Defer(func() { n.kubelet.End(unix.SIGKILL) })
		n.awaitReady(ts, corev1.ConditionTrue, began)
	case "stop":
		n.kubelet.End(unix.SIGTERM)
	case "kill":
		n.kubelet.End(unix.SIGKILL)
	default:
		ts.Fatalf("kubelet %s: unknown", args[0])
	}
}

// knowMemory lets the agent write its state for a kubelet again if the machine's amount of memory has changed. A
// virtual machine's may change while it runs. A kubelet with the static memory policy refuses to start on the old
// state.
func (h *harness) knowMemory(ts *testscript.TestScript) {
	text, err := os.ReadFile(filepath.Join(rootOf(ts), state.MemoryFile))
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	ts.Check(err)
	m, err := machine.Read(os.DirFS("/"))
	ts.Check(err)
	for _, n := range m.Nodes {
		if !strings.Contains(string(text), fmt.Sprintf(`"total":%d,`, n.Memory)) {
			h.agent(ts, []string{"start", "--kubeconfig", ts.Getenv("NODE"), "--node-ip", nodeOf(ts).address})
			h.agent(ts, []string{"stop"})
			return
		}
	}
}

func kubectl(ts *testscript.TestScript, neg bool, args []string) {
	nodeOf(ts)
	switch err := ts.Exec("kubectl", args...); {
	case err != nil && !neg:
		ts.Fatalf("kubectl %q: %v", args, err)
	case err == nil && neg:
		ts.Fatalf("kubectl %q succeeded", args)
	}
}

func create(ts *testscript.TestScript, args []string) {
	text := os.Expand(ts.ReadFile(args[0]), func(name string) string {
		if slices.Contains([]string{"IMAGE", "REGISTRY", "SERVER", "WORK", "METRICS_PORT", "CA_BUNDLE", "CDI",
			"PORT", "PORT2"}, name) {
			return ts.Getenv(name)
		}
		return "$" + name
	})
	path := ts.MkAbs(args[0])
	ts.Check(os.WriteFile(path, []byte(text), 0o644))
	kubectl(ts, false, []string{"create", "-f", path})
}

func apiserver(ts *testscript.TestScript, args []string) {
	c := nodeOf(ts).cluster
	actions := map[string]func(){"kill": c.KillAPIServer, "start": c.StartAPIServer, "pause": func() {
		c.Pause(kubeapitest.APIServer)
	}, "resume": func() {
		c.Resume(kubeapitest.APIServer)
	}}
	act(ts, "apiserver", actions, args[0])
}

func nodes(ts *testscript.TestScript, args []string) {
	c := nodeOf(ts).cluster
	act(ts, "nodes", map[string]func(){"cut": c.CutConnections, "disconnect": c.Disconnect, "connect": c.Connect},
		args[0])
}

func act(ts *testscript.TestScript, command string, actions map[string]func(), name string) {
	action, ok := actions[name]
	if !ok {
		ts.Fatalf("%s %s: unknown", command, name)
	}
	action()
}

func etcd(ts *testscript.TestScript, args []string) {
	if args[0] != "pause" {
		ts.Fatalf("etcd %s: unknown", args[0])
	}
	d, err := time.ParseDuration(args[1])
	ts.Check(err)
	c := nodeOf(ts).cluster
	c.Pause(kubeapitest.Etcd)
	time.Sleep(d) // the length of the outage is part of the test
	c.Resume(kubeapitest.Etcd)
}

func controllers(ts *testscript.TestScript, args []string) {
	c := nodeOf(ts).cluster
	act(ts, "controllers",
		map[string]func(){"pause": func() { c.Pause(kubeapitest.Controllers) }, "resume": func() {
			c.Resume(kubeapitest.Controllers)
		}}, args[0])
}

func inject(ts *testscript.TestScript, args []string) {
	c := nodeOf(ts).cluster
	if len(args) == 1 && args[0] == "none" {
		c.Inject()
		return
	}
	var faults []kubeapitest.Fault
	for rule := range slices.Chunk(args, 4) {
		if len(rule) < 4 {
			ts.Fatalf("inject %q: expected METHOD PATH CODE N", rule)
		}
		code, err := strconv.Atoi(rule[2])
		ts.Check(err)
		times, err := strconv.Atoi(rule[3])
		ts.Check(err)
		fault := kubeapitest.Fault{Code: code, Times: times, Reason: reasons[code], Match: func(r *http.Request) bool {
			return r.Method == rule[0] && strings.Contains(r.URL.Path, rule[1])
		}}
		if code == http.StatusTooManyRequests {
			fault.RetryAfter = 1
		}
		faults = append(faults, fault)
	}
	c.Inject(faults...)
}

// reasons are the reasons that an API server sends with a status code.
var reasons = map[int]metav1.StatusReason{
	http.StatusForbidden: metav1.StatusReasonForbidden, http.StatusConflict: metav1.StatusReasonConflict,
	http.StatusGone:                metav1.StatusReasonExpired,
	http.StatusTooManyRequests:     metav1.StatusReasonTooManyRequests,
	http.StatusInternalServerError: metav1.StatusReasonInternalError,
}

func awaitInjected(ts *testscript.TestScript, _ []string) {
	eventually(ts, func() (bool, any) {
		return nodeOf(ts).cluster.Spent(), "some injected faults have not occurred yet"
	})
}

func expire(ts *testscript.TestScript, _ []string) {
	id := kubeapitest.Node(nodeName)
	id.Lifetime = -time.Minute
	ts.Setenv("NODE", nodeOf(ts).cluster.Kubeconfig(id))
}

// renew replaces the file $NODE by a kubeconfig with a valid certificate.
func renew(ts *testscript.TestScript, _ []string) {
	ts.Check(os.Rename(nodeOf(ts).cluster.NodeKubeconfig(nodeName), ts.Getenv("NODE")))
}

// awaitDeleted waits until the API server has deleted a pod. It fails if the runtime still has a container of the pod
// then, or its directory still exists.
func (h *harness) awaitDeleted(ts *testscript.TestScript, args []string) {
	n, k := nodeOf(ts), key(args[0])
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	uid := ""
	p, err := n.client.CoreV1().Pods(k.Namespace).Get(ctx, k.Name, metav1.GetOptions{})
	switch {
	case err == nil:
		uid = string(p.UID)
		ts.Check(n.deleted(ctx, p))
	case !apierrors.IsNotFound(err):
		ts.Fatalf("%v", err)
	}
	left := slices.DeleteFunc(h.list(ts), func(line string) bool { return !strings.Contains(line, " "+k.Name+" ") })
	if _, err := os.Lstat(filepath.Join(rootOf(ts), "pods", uid)); uid != "" && err == nil {
		left = append(left, "its directory")
	}
	if len(left) > 0 {
		fail(ts, "the API server has deleted pod %s, but the node still has: %q", k, left)
	}
}

func (n *node) deleted(ctx context.Context, p *corev1.Pod) error {
	w, err := n.client.CoreV1().Pods(p.Namespace).Watch(ctx, metav1.ListOptions{
		FieldSelector: "metadata.name=" + p.Name, ResourceVersion: p.ResourceVersion,
	})
	if err != nil {
		return err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		if e.Type == watch.Deleted {
			return nil
		}
	}
	return fmt.Errorf("wait for the deletion of pod %s/%s: the watch ended", p.Namespace, p.Name)
}

func awaitNodeReady(ts *testscript.TestScript, args []string) {
	nodeOf(ts).awaitReady(ts, corev1.ConditionStatus(args[0]), time.Time{})
}

// awaitReady waits until the API server has this Ready condition of the node with a heartbeat since a time.
func (n *node) awaitReady(ts *testscript.TestScript, want corev1.ConditionStatus, since time.Time) {
	eventually(ts, func() (bool, any) {
		object, err := n.client.CoreV1().Nodes().Get(context.Background(), nodeName, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		return slices.ContainsFunc(object.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == want &&
				!c.LastHeartbeatTime.Time.Before(since.Truncate(time.Second))
		}), object.Status.Conditions
	})
}

func awaitPod(ts *testscript.TestScript, args []string) {
	n, k := nodeOf(ts), key(args[0])
	eventually(ts, func() (bool, any) {
		p, err := n.client.CoreV1().Pods(k.Namespace).Get(context.Background(), k.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return args[1] == "Gone", "not there"
		}
		if err != nil {
			return false, err
		}
		return shows(p, args[1]), describe(p)
	})
}

// awaitRenewed waits until the renewal time in the node's lease changes. It may change to an earlier time, because it
// comes from the node's clock.
func awaitRenewed(ts *testscript.TestScript, _ []string) {
	leases := nodeOf(ts).client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	var first *metav1.MicroTime
	eventually(ts, func() (bool, any) {
		l, err := leases.Get(context.Background(), nodeName, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		if first == nil {
			first = l.Spec.RenewTime
		}
		return !l.Spec.RenewTime.Equal(first), first
	})
}
