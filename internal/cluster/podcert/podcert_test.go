package podcert

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/cluster/kubeapi/kubeapitest"
	"github.com/berth-run/berth/internal/cluster/objects"
	"github.com/berth-run/berth/internal/cluster/podcert/podcerttest"
	"github.com/berth-run/berth/internal/cluster/token"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/pod"
)

var shared = kubeapitest.NewShared(kubeapitest.Options{})

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }

func entryOf(namespace, signer string) *entry {
	return &entry{pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}},
		want: &corev1.PodCertificateProjection{SignerName: signer}}
}

// The API server accepts a key of each type, and a request signed with it.
func TestNewKey(t *testing.T) {
	for _, keyType := range []string{"RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"} {
		private, proof, err := newKey(keyType)
		if err != nil {
			t.Fatal(err)
		}
		block, rest := pem.Decode(private)
		if block == nil || block.Type != "PRIVATE KEY" || len(rest) > 0 {
			t.Fatalf("%s: %s", keyType, private)
		}
		request, err := x509.ParseCertificateRequest(proof)
		if err != nil || request.CheckSignature() != nil {
			t.Errorf("%s: %v, %v", keyType, err, request.CheckSignature())
		}
	}
	const want = `make a key of type "DSA": this agent does not know the type`
	if _, _, err := newKey("DSA"); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// signals wakes the certificates when a request has changed, and the test when a pod's files must be made again.
type signals struct{ requests, files wake.Signal }

func (s *signals) AddAll(all map[object.Key]bool) {
	if all[object.CertificateRequests()] {
		s.requests.Wake()
		return
	}
	s.files.Wake()
}

type sink struct{}

func (sink) Put(object.Value) {}
func (sink) Drop(object.Key)  {}

type events chan string

func (e events) Event(_ corev1.ObjectReference, _, reason, _ string, args ...any) {
	e <- fmt.Sprint(reason, ": ", args)
}

// node is a node of a real API server whose pods get certificates of a signer.
type node struct {
	*Certificates
	t       *testing.T
	signals *signals
	events  events
	pods    *store.Table[types.UID, *pod.Pod]
	admin   kubernetes.Interface
	space   string
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func join(t *testing.T) *node {
	api := shared.Cluster(t)
	name := "node-" + api.Namespace()
	client, err := kubernetes.NewForConfig(api.NodeConfig(name))
	check(t, err)
	n := &node{t: t, signals: &signals{wake.New(), wake.New()}, events: make(events, 10),
		pods: store.New[types.UID, *pod.Pod](), admin: api.Client(), space: api.Namespace()}
	own, err := n.admin.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}},
		metav1.CreateOptions{})
	check(t, err)
	nodes := store.New[string, *corev1.Node]()
	nodes.Put(name, own)
	log := slog.New(slog.DiscardHandler)
	followed := objects.New(objects.Config{Client: client, Pods: n.pods, Sink: sink{}, Changed: n.signals, Nodes: nodes,
		NodeName: name, Certificates: true, Log: log})
	n.Certificates = New(Config{Client: client, Requests: followed, Nodes: nodes, NodeName: name, Changed: n.signals,
		RequestsChanged: n.signals.requests,
		Accounts:        token.NewPuller(token.New(token.FromAPI(client), log), client), Events: n.events, Log: log})
	n.run(followed.Run)
	n.run(n.Run)
	return n
}

// run runs a loop until the end of the test.
func (n *node) run(loop func(context.Context) error) {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- loop(ctx) }()
	n.t.Cleanup(func() {
		stop()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			n.t.Errorf("a loop ended with %v", err)
		}
	})
}

// start creates a pod with a certificate of a signer.
func (n *node) start(name, signer string) *corev1.Pod {
	n.t.Helper()
	p, err := n.admin.CoreV1().Pods(n.space).Create(n.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{NodeName: n.cfg.NodeName,
			Containers: []corev1.Container{{Name: "c", Image: "example.com/workload:1"}},
			Volumes: []corev1.Volume{{Name: "identity", VolumeSource: corev1.VolumeSource{
				Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
					{PodCertificate: &corev1.PodCertificateProjection{SignerName: signer, KeyType: "ED25519",
						CredentialBundlePath: "all", KeyPath: "key", CertificateChainPath: "chain",
						UserAnnotations: map[string]string{"example.com/a": "b"}}}}}}}}}}, metav1.CreateOptions{})
	check(n.t, err)
	n.pods.Put(p.UID, &pod.Pod{Pod: p, Source: pod.SourceAPI})
	return p
}

// until asks for the files of a pod each time they may have changed, until reached accepts them.
func (n *node) until(p *corev1.Pod, reached func(files map[string][]byte, err error) bool) {
	n.t.Helper()
	timeout := time.After(time.Minute)
	for {
		files, err := n.Files(p, &p.Spec.Volumes[0], 0)
		if reached(files, err) {
			return
		}
		select {
		case <-n.signals.files.C():
		case <-timeout:
			n.t.Fatalf("not within a minute; the files: %s, %v", files, err)
		}
	}
}

func (n *node) requestsOf(p *corev1.Pod) (found []pcr) {
	list, err := n.admin.CertificatesV1beta1().PodCertificateRequests(n.space).List(n.t.Context(), metav1.ListOptions{})
	check(n.t, err)
	for _, r := range list.Items {
		if r.Spec.PodUID == p.UID {
			found = append(found, r)
		}
	}
	return found
}

// A pod gets a certificate for its own key from the signer, and another one with another key when the refresh is due.
func TestIssueAndRefresh(t *testing.T) {
	n := join(t)
	signer, err := podcerttest.New()
	check(t, err)
	web := n.start("web", podcerttest.Issues)
	n.until(web, func(_ map[string][]byte, err error) bool {
		keys, waits := object.Waits(err)
		if !waits || keys[0] != object.CertificatesOf(web) {
			t.Fatalf("%v: waits for %v", err, keys)
		}
		return strings.Contains(err.Error(), "to answer PodCertificateRequest "+n.space+"/req-")
	})
	if r := n.requestsOf(web); len(r) != 1 || len(r[0].OwnerReferences) != 1 ||
		r[0].OwnerReferences[0].UID != web.UID || r[0].Spec.UnverifiedUserAnnotations["example.com/a"] != "b" {
		t.Errorf("requests: %+v", r)
	}
	n.run(func(ctx context.Context) error { return signer.Run(ctx, n.admin) })
	issued := func(before []byte) (bundle []byte) {
		n.until(web, func(files map[string][]byte, err error) bool {
			bundle = files["all"]
			if err == nil && !bytes.Equal(bundle, slices.Concat(files["key"], files["chain"])) {
				t.Fatalf("different files: %s", files)
			}
			return err == nil && !bytes.Equal(bundle, before)
		})
		check(t, signer.Verify(bundle, n.space, "web"))
		return bundle
	}
	first := issued(nil)

	n.mu.Lock()
	for _, e := range n.entries {
		e.state.current.refresh = time.Now().Add(-time.Second)
	}
	n.mu.Unlock()
	n.signals.requests.Wake()
	if second := issued(first); bytes.Equal(second[:100], first[:100]) {
		t.Error("the second certificate has the key of the first")
	}
	if r := n.requestsOf(web); len(r) != 2 {
		t.Errorf("%d requests, want 2", len(r))
	}
	const metric = `# HELP kubelet_podcertificate_states Number of podCertificate sources of projected volumes,` +
		` by signer and state.
# TYPE kubelet_podcertificate_states gauge
kubelet_podcertificate_states{signer_name="example.com/issues",state="fresh"} 1
`
	check(t, testutil.CollectAndCompare(n, strings.NewReader(metric)))
	n.Forget(web.UID)
	if len(n.entries) > 0 {
		t.Error("the certificate of an ended pod is kept")
	}
}

// A refusal is final: an event says so, and no further request is made.
func TestRefusals(t *testing.T) {
	n := join(t)
	signer, err := podcerttest.New()
	check(t, err)
	n.run(func(ctx context.Context) error { return signer.Run(ctx, n.admin) })
	for name, test := range map[string]struct{ signer, event, err string }{
		"denied": {podcerttest.Denies, `Denied: [PodCertificateRequest * was denied, reason="UnsupportedKeyType", ` +
			`message="use ED25519"]`,
			`PodCertificateRequest was permanently denied: reason="UnsupportedKeyType" message="use ED25519"`},
		"failed": {podcerttest.Fails,
			`Failed: [PodCertificateRequest * failed, reason="Broken", message="the authority is away"]`,
			`PodCertificateRequest was permanently failed: reason="Broken" message="the authority is away"`},
	} {
		p := n.start(name, test.signer)
		n.until(p, func(_ map[string][]byte, err error) bool { return err.Error() == test.err })
		request := n.requestsOf(p)
		if len(request) != 1 {
			t.Fatalf("%s: %d requests", name, len(request))
		}
		want := strings.Replace(test.event, "*", n.space+"/"+request[0].Name, 1)
		if got := <-n.events; got != want {
			t.Errorf("event %s, want %s", got, want)
		}
		n.signals.requests.Wake()
	}
}
