package https

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-run/berth/internal/api/auth"
	"github.com/berth-run/berth/internal/api/servertest"
	"github.com/berth-run/berth/internal/cluster/kubeapi/kubeapitest"
)

var shared = kubeapitest.NewShared(kubeapitest.Options{})

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }

// join starts a server and registers it as the kubelet of a node of the cluster.
func join(t *testing.T, c *kubeapitest.Cluster, name string) *node {
	t.Helper()
	client := must(kubernetes.NewForConfig(c.NodeConfig(name)))
	n := start(t, func(o *Options) {
		a := must(auth.New(auth.Options{Node: name, ClientCAFile: c.CA(), Tokens: true, TokenTTL: time.Minute,
			Mode: auth.ModeWebhook, AllowedTTL: time.Minute, DeniedTTL: time.Minute, TokenReviews: client,
			AccessReviews: client, Log: o.Log}))
		if err := a.Load(); err != nil {
			t.Fatal(err)
		}
		o.Access = a
		o.TLS.Certificates = []tls.Certificate{must(tls.LoadX509KeyPair(c.ServingCertificate(name, "127.0.0.1")))}
	})
	port := n.Addr(anyPort).(*net.TCPAddr).Port
	self := must(client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}},
		metav1.CreateOptions{}))
	self.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
	self.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(port)
	must(client.CoreV1().Nodes().UpdateStatus(t.Context(), self, metav1.UpdateOptions{}))
	return n
}

// The test runs kubectl as a user does. kubectl calls the API server, and the API server calls the node
// with its own certificate. (The API server's proxy to nodes refuses loopback addresses.)
func TestKubectl(t *testing.T) {
	c := shared.Cluster(t)
	n := join(t, c, "n1")
	ns := c.Namespace()
	p := servertest.Pod("web", "app")
	p.Namespace, p.Spec.NodeName = ns, "n1"
	p.CreationTimestamp = metav1.Time{}
	pods := c.Client().CoreV1().Pods(ns)
	made := must(pods.Create(t.Context(),
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: ns}, Spec: p.Spec}, metav1.CreateOptions{}))
	p.UID = made.UID
	servertest.Run(p)
	made.Status = p.Status
	made.Status.PodIP = ""
	must(pods.UpdateStatus(t.Context(), made, metav1.UpdateOptions{}))
	p = n.agent.Put(p)
	n.agent.WriteLog(t, p, "app", 0, "hello from the log")

	for want, args := range map[string][]string{
		"hello from the log\n": {"logs", "web", "-n", ns},
		"a\nb\n":               {"exec", "web", "-n", ns, "--", "echo", "a", "b"},
	} {
		if got := c.Kubectl(args...); !strings.Contains(got, want) {
			t.Errorf("kubectl %s: %q, want %q", strings.Join(args, " "), got, want)
		}
	}
	attach := c.KubectlCommand(t.Context(), "attach", "web", "-n", ns, "-i", "--quiet")
	attach.Stdin = strings.NewReader("typed\n")
	if out, err := attach.Output(); err != nil || string(out) != "typed\n" {
		t.Errorf("kubectl attach: %q, %v", out, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	forward := c.KubectlCommand(ctx, "port-forward", "web", "-n", ns, "0:8080")
	forward.Cancel = func() error { return forward.Process.Signal(os.Interrupt) }
	out := must(forward.StdoutPipe())
	if err := forward.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cancel()
		if err := forward.Wait(); err != nil && !errors.Is(err, context.Canceled) {
			t.Logf("kubectl port-forward: %v", err) // it was interrupted
		}
	}()
	line := readLine(t, out) // Forwarding from 127.0.0.1:PORT -> 8080
	at, _, _ := strings.Cut(strings.TrimPrefix(line, "Forwarding from "), " ")
	conn := must(net.Dial("tcp", at))
	defer conn.Close()
	if got := readLine(t, conn); got != "port 8080" {
		t.Errorf("kubectl port-forward: %q", got)
	}
}

func readLine(t *testing.T, r io.Reader) string {
	t.Helper()
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(line, "\n")
}
