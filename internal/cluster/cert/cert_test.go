package cert

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-run/berth/internal/cluster/kubeapi"
	"github.com/berth-run/berth/internal/cluster/kubeapi/kubeapitest"
	"github.com/berth-run/berth/internal/config"
)

// Client certificates are valid for 10 s, so that they are renewed during a test.
var shared = kubeapitest.NewShared(kubeapitest.Options{Controllers: true,
	ControllerManager: []string{"--cluster-signing-duration=10s"}})

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }

// reasons receives the reasons of events.
type reasons chan string

func (e reasons) Event(ref corev1.ObjectReference, _, reason, _ string, _ ...any) {
	e <- reason + " " + string(ref.UID)
}

// running calls run in the background until the test ends.
func running(t *testing.T, run func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := run(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("run: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
}

func within(t *testing.T, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatalf("%s: not within a minute", what)
	}
}

type node struct {
	name    string
	cluster *config.Cluster
	client  *Client
	api     *kubeapi.API
	changed chan struct{}
	events  reasons
}

// newNode loads the client certificate of a node, and connects.
func newNode(t *testing.T, name string, c config.Cluster) *node {
	t.Helper()
	c.ContentType, c.Main = "application/vnd.kubernetes.protobuf", config.Rate{QPS: 50, Burst: 100}
	n := &node{name: name, cluster: &c, changed: make(chan struct{}, 100), events: make(reasons, 100)}
	n.client = NewClient(ClientOptions{
		Cluster: n.cluster, NodeName: name, Events: n.events, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	base, err := n.client.Load()
	if err != nil {
		t.Fatal(err)
	}
	n.api, err = kubeapi.Connect(kubeapi.Options{Base: base, Cluster: n.cluster, Identity: n.client,
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	running(t, func(ctx context.Context) error {
		for {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-n.client.Replaced():
				n.api.ReplaceConnections()
				n.changed <- struct{}{}
			}
		}
	})
	return n
}

// who returns the user that the API server sees.
func (n *node) who(t *testing.T) string {
	t.Helper()
	made, err := n.api.Main.CoreV1().Nodes().Create(t.Context(),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name}},
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return err.Error()
	}
	return made.Name
}

func TestBootstrapAndRotation(t *testing.T) {
	cluster := shared.Cluster(t)
	dir := t.TempDir()
	c := config.Cluster{Kubeconfig: filepath.Join(dir, "kubelet.conf"),
		BootstrapKubeconfig: cluster.BootstrapKubeconfig(), CertDir: filepath.Join(dir, "pki"),
		RotateCertificates: true}
	n := newNode(t, "new", c)
	if n.client.Certificate() != nil {
		t.Error("there is a certificate before the first request")
	}
	running(t, n.client.Run)
	within(t, "bootstrap", n.client.Ready())
	first := n.client.Certificate().Leaf
	if got := n.who(t); got != "new" {
		t.Errorf("the server says %s", got)
	}
	within(t, "renewal", n.changed)
	if second := n.client.Certificate().Leaf; !second.NotAfter.After(first.NotAfter) {
		t.Errorf("renewed from %v to %v", first.NotAfter, second.NotAfter)
	}
	if got := n.who(t); got != "new" {
		t.Errorf("with the second one the server says %s", got)
	}
	// Another agent, or a kubelet, can use the kubeconfig and the pair.
	next := newNode(t, "new", config.Cluster{Kubeconfig: c.Kubeconfig, CertDir: c.CertDir})
	if got := next.who(t); got != "new" {
		t.Errorf("for the next agent the server says %s", got)
	}
}

// Nothing stops when the certificate expires, and a renewed file is loaded.
func TestARenewedFileReplacesAnExpiredCertificate(t *testing.T) {
	cluster := shared.Cluster(t)
	id := kubeapitest.Node("old")
	id.Lifetime = -time.Minute
	path := filepath.Join(t.TempDir(), "kubeconfig")
	replace := func(id kubeapitest.Identity) {
		data, err := os.ReadFile(cluster.Kubeconfig(id))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.WriteFile(path+".new", data, 0o600), os.Rename(path+".new", path)); err != nil {
			t.Fatal(err)
		}
	}
	replace(id)
	n := newNode(t, "old", config.Cluster{Kubeconfig: path, CertDir: t.TempDir()})
	if got := n.who(t); got != "Unauthorized" {
		t.Errorf("the server says %s", got)
	}
	running(t, n.client.Run)
	if got := <-n.events; got != "ClientCertificateExpired old" {
		t.Errorf("event %s", got)
	}
	replace(kubeapitest.Node("old"))
	within(t, "taken up", n.changed)
	if got := n.who(t); got != "old" {
		t.Errorf("the server says %s", got)
	}
}

func TestLoadWithoutKubeconfig(t *testing.T) {
	c := NewClient(ClientOptions{Cluster: &config.Cluster{Kubeconfig: "/none"}, Log: slog.New(slog.DiscardHandler)})
	_, err := c.Load()
	if want := "read --kubeconfig: stat /none: no such file or directory; next: give the kubeconfig of this node, or " +
		"--bootstrap-kubeconfig to request one"; err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
}

// shown returns the certificate that a server presents.
func shown(t *testing.T, s *Serving) (*x509.Certificate, error) {
	t.Helper()
	client, server := net.Pipe()
	defer client.Close()
	go func() {
		defer server.Close()
		_ = tls.Server(server, s.TLSConfig()).HandshakeContext(t.Context()) // the client gets the error
	}()
	conn := tls.Client(client, &tls.Config{InsecureSkipVerify: true})
	if err := conn.HandshakeContext(t.Context()); err != nil {
		return nil, err
	}
	return conn.ConnectionState().PeerCertificates[0], nil
}

// located is a node whose addresses a test sets.
type located struct {
	mu        sync.Mutex
	addresses []corev1.NodeAddress
}

func (l *located) set(to []corev1.NodeAddress) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.addresses = to
}

func (l *located) Addresses() []corev1.NodeAddress {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.addresses
}

// The certificate has the node's addresses. A new one is requested when they change.
func TestServingByRequest(t *testing.T) {
	cluster := shared.Cluster(t)
	admin := cluster.Client()
	client, err := kubernetes.NewForConfig(cluster.NodeConfig("served"))
	if err != nil {
		t.Fatal(err)
	}
	addresses := &located{}
	newAddresses := make(chan struct{}, 1)
	move := func(ip string) {
		addresses.set([]corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ip},
			{Type: corev1.NodeHostName, Address: "served"}})
		newAddresses <- struct{}{}
	}
	s := NewServing(ServingOptions{
		TLS: config.TLS{Bootstrap: true, CertDir: t.TempDir(), MinVersion: tls.VersionTLS12}, NodeName: "served",
		Client: client, AddressesChanged: newAddresses, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Node: addresses,
	})
	if err := s.Load(); err != nil {
		t.Fatal(err)
	}
	if _, err := shown(t, s); err == nil {
		t.Error("a certificate is shown before there is one")
	}
	requests, err := admin.CertificatesV1().CertificateSigningRequests().Watch(t.Context(),
		metav1.ListOptions{FieldSelector: "spec.signerName=" + certificatesv1.KubeletServingSignerName})
	if err != nil {
		t.Fatal(err)
	}
	defer requests.Stop()
	approve := func() {
		for e := range requests.ResultChan() {
			r := e.Object.(*certificatesv1.CertificateSigningRequest)
			if len(r.Status.Conditions) > 0 || e.Type != "ADDED" {
				continue
			}
			r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{
				{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test"}}
			if _, err := admin.CertificatesV1().CertificateSigningRequests().UpdateApproval(t.Context(), r.Name, r,
				metav1.UpdateOptions{}); err != nil {
				t.Error(err)
			}
			return
		}
	}
	running(t, s.Run)
	move("192.0.2.1")
	approve()
	within(t, "the first", s.Ready())
	leaf, err := shown(t, s)
	if err != nil || leaf.VerifyHostname("192.0.2.1") != nil || leaf.VerifyHostname("served") != nil {
		t.Errorf("%v: %v %v", err, leaf.IPAddresses, leaf.DNSNames)
	}
	move("192.0.2.2")
	approve()
	within(t, "the second", s.keeper.replaced.C())
	if leaf, err := shown(t, s); err != nil || leaf.VerifyHostname("192.0.2.2") != nil {
		t.Errorf("%v: %v", err, leaf.IPAddresses)
	}
}

func TestServingFiles(t *testing.T) {
	t.Run("self-signed", func(t *testing.T) {
		o := ServingOptions{TLS: config.TLS{CertDir: filepath.Join(t.TempDir(), "pki"), MinVersion: tls.VersionTLS12},
			NodeName: "alone", Log: slog.New(slog.DiscardHandler)}
		var serials []string
		for range 2 { // the second agent keeps the pair of the first
			s := NewServing(o)
			if err := s.Load(); err != nil {
				t.Fatal(err)
			}
			leaf, err := shown(t, s)
			if err != nil || leaf.VerifyHostname("alone") != nil {
				t.Fatalf("%v: %v", err, leaf)
			}
			if a := s.keeper.next(time.Now()); a.Request {
				t.Error("another certificate is requested at once")
			}
			serials = append(serials, string(leaf.Raw))
		}
		if serials[0] != serials[1] {
			t.Error("the second agent has made another one")
		}
	})
	t.Run("replaced", func(t *testing.T) {
		cluster := shared.Cluster(t)
		dir := t.TempDir()
		certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
		put := func(host string) {
			cert, key := cluster.ServingCertificate("files", host)
			for from, to := range map[string]string{cert: certFile, key: keyFile} {
				data, err := os.ReadFile(from)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(to, data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		put("a.example")
		o := ServingOptions{TLS: config.TLS{CertFile: certFile, KeyFile: keyFile, CertDir: dir,
			MinVersion: tls.VersionTLS12}, NodeName: "files", Log: slog.New(slog.DiscardHandler)}
		s := NewServing(o)
		o.Once = true
		once := NewServing(o)
		if err := errors.Join(s.Load(), once.Load()); err != nil {
			t.Fatal(err)
		}
		running(t, s.Run)
		put("b.example")
		within(t, "replaced", s.keeper.replaced.C())
		if leaf, err := shown(t, s); err != nil || leaf.VerifyHostname("b.example") != nil {
			t.Errorf("%v: %v", err, leaf.DNSNames)
		}
		once.keeper.reload(time.Now())
		if leaf, err := shown(t, once); err != nil || leaf.VerifyHostname("a.example") != nil {
			t.Errorf("with the feature gate off: %v: %v", err, leaf.DNSNames)
		}
	})
}

func TestNext(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	leaf := &x509.Certificate{NotBefore: at(0), NotAfter: at(100), IPAddresses: []net.IP{net.IPv4(192, 0, 2, 1)}}
	leaf.Subject.CommonName = "system:node:n"
	address := func(ip string) []corev1.NodeAddress {
		return []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ip}}
	}
	good := servingRequest("n", address("192.0.2.1"))
	for _, tt := range []struct {
		name string
		leaf *x509.Certificate
		s    subject
		now  int
		want action
	}{
		{"none", nil, subject{Template: good}, 0, action{Request: true}},
		{"none, and no request possible", nil, subject{}, 5, action{At: at(15)}},
		{"fresh", leaf, subject{Template: good, Life: 0.8, Rotate: true}, 10, action{At: at(80)}},
		{"dated back", leaf, subject{Template: good, Life: 0.8, Rotate: true, Taken: at(90)}, 90, action{At: at(98)}},
		{"due", leaf, subject{Template: good, Life: 0.8, Rotate: true}, 80, action{Request: true}},
		{"not renewed", leaf, subject{Template: good, Life: 0.8}, 90, action{At: at(100)}},
		{"expired", leaf, subject{Template: good}, 100, action{Request: true}},
		{"expired, and no request possible", leaf, subject{}, 100, action{At: at(110)}},
		{"another address", leaf, subject{Template: servingRequest("n", address("192.0.2.2")), Life: 0.8}, 10,
			action{Request: true}},
		{"another node", leaf, subject{Template: nodeRequest("m"), Life: 0.8}, 10, action{Request: true}},
		{"not its own", leaf, subject{Template: good, Life: 0.8, Rotate: true, First: true}, 10, action{Request: true}},
	} {
		if diff := cmp.Diff(tt.want, next(tt.leaf, tt.s, at(tt.now))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestServingRequest(t *testing.T) {
	got := servingRequest("n", []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: "192.0.2.9"}, {Type: corev1.NodeExternalIP, Address: "192.0.2.1"},
		{Type: corev1.NodeHostName, Address: "n"},
		{Type: corev1.NodeInternalDNS, Address: "n"}, {Type: corev1.NodeExternalDNS, Address: "a.example"},
		{Type: corev1.NodeInternalIP, Address: "192.0.2.9"}, {Type: corev1.NodeInternalIP, Address: "none"},
	})
	want := nodeRequest("n")
	want.DNSNames, want.IPAddresses = []string{"a.example", "n"},
		[]net.IP{net.IPv4(192, 0, 2, 1).To4(), net.IPv4(192, 0, 2, 9).To4()}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := servingRequest("n", []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "n"}}); got != nil {
		t.Errorf("without an address: %v", got)
	}
}

// fixed is a source that always has the same pair.
type fixed struct {
	source
	pair *tls.Certificate
}

func (f fixed) read() (*tls.Certificate, error) { return f.pair, nil }
func (f fixed) expired(*x509.Certificate)       {}

// For a node whose clock is ahead of the signer's, each new certificate has already expired. The requests become rare,
// and normal again when the clock is right.
func TestRequestsBecomeRareWithAClockThatIsAhead(t *testing.T) {
	ends := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	pair := &tls.Certificate{Leaf: &x509.Certificate{NotAfter: ends}}
	k := newKeeper(fixed{pair: pair}, slog.New(slog.DiscardHandler), nil)
	var waits []time.Duration
	for _, now := range []time.Time{ends.Add(-time.Hour), ends.Add(time.Hour), ends.Add(time.Hour),
		ends.Add(-time.Minute), ends} {
		waits = append(waits, k.requested(t.Context(), nil, now).Sub(now))
	}
	if d := cmp.Diff([]time.Duration{0, retryFirst, 2 * retryFirst, 0, retryFirst}, waits); d != "" {
		t.Error(d)
	}
	for range 20 {
		k.requested(t.Context(), nil, ends)
	}
	if k.retry != aheadMax {
		t.Errorf("the longest wait is %v", k.retry)
	}
}
