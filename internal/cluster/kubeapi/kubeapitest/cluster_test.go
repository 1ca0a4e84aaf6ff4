package kubeapitest

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"net/http"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func clientFor(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	check(t, err)
	return client
}

func fromFile(t *testing.T, path string) kubernetes.Interface {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", path)
	check(t, err)
	return clientFor(t, config)
}

var shared = NewShared(Options{})

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }

func podOn(node, secret string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p-" + node},
		Spec: corev1.PodSpec{
			NodeName:   node,
			Containers: []corev1.Container{{Name: "c", Image: "example.com/workload:1"}},
			Volumes: []corev1.Volume{{
				Name: "s", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret}},
			}},
		},
	}
}

// A node can read the Secrets of its own pods only.
func TestNodeAuthorizer(t *testing.T) {
	c := shared.Cluster(t)
	ctx, namespace := t.Context(), c.Namespace()
	admin := c.Client().CoreV1()
	for _, node := range []string{"authorized1", "authorized2"} {
		_, err := admin.Secrets(namespace).Create(ctx,
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "of-" + node}}, metav1.CreateOptions{})
		check(t, err)
		_, err = admin.Pods(namespace).Create(ctx, podOn(node, "of-"+node), metav1.CreateOptions{})
		check(t, err)
	}
	secrets := fromFile(t, c.NodeKubeconfig("authorized1")).CoreV1().Secrets(namespace)
	// The authorizer learns of the pod from a watch.
	check(t, c.servers.api.answers(ctx, func() error {
		_, err := secrets.Get(ctx, "of-authorized1", metav1.GetOptions{})
		return err
	}))
	if _, err := secrets.Get(ctx, "of-authorized2", metav1.GetOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a Secret of another node's pod: %v", err)
	}
}

func TestNodeRestriction(t *testing.T) {
	c := shared.Cluster(t)
	ctx := t.Context()
	for _, name := range []string{"restricted1", "restricted2"} {
		_, err := c.Client().CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}},
			metav1.CreateOptions{})
		check(t, err)
	}
	nodes := clientFor(t, c.NodeConfig("restricted1")).CoreV1().Nodes()
	label := []byte(`{"metadata":{"labels":{"example.com/mine":"yes"}}}`)
	_, err := nodes.Patch(ctx, "restricted1", types.StrategicMergePatchType, label, metav1.PatchOptions{})
	check(t, err)
	if _, err := nodes.Patch(ctx, "restricted2", types.StrategicMergePatchType, label,
		metav1.PatchOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("label another node: %v", err)
	}
	guarded := []byte(`{"metadata":{"labels":{"node-restriction.kubernetes.io/x":"y"}}}`)
	if _, err := nodes.Patch(ctx, "restricted1", types.StrategicMergePatchType, guarded,
		metav1.PatchOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a label that is the administrator's: %v", err)
	}
}

func TestExpiredCertificate(t *testing.T) {
	c := shared.Cluster(t)
	id := Node("expired")
	id.Lifetime = -time.Minute
	old := fromFile(t, c.Kubeconfig(id)).CoreV1().Nodes()
	if _, err := old.Get(t.Context(), "expired", metav1.GetOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("from the API server: %v", err)
	}
	c.Inject(Fault{Match: func(*http.Request) bool { return false }})
	t.Cleanup(func() { c.Inject() })
	if _, err := old.Get(t.Context(), "expired", metav1.GetOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("from the proxy: %v", err)
	}
}

// While there are faults, the proxy sends the requests. The API server still sees the node as the user.
func TestInject(t *testing.T) {
	c := shared.Cluster(t)
	ctx := t.Context()
	for _, name := range []string{"faulty", "other"} {
		_, err := c.Client().CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}},
			metav1.CreateOptions{})
		check(t, err)
	}
	nodes := clientFor(t, c.NodeConfig("faulty")).CoreV1().Nodes()
	patch := func(name string) error {
		_, err := nodes.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`),
			metav1.PatchOptions{})
		return err
	}
	c.Inject(Fault{
		Match: func(r *http.Request) bool { return r.Method == http.MethodPatch },
		Times: 1, Code: http.StatusConflict, Reason: metav1.StatusReasonConflict,
	})
	t.Cleanup(func() { c.Inject() })
	if err := patch("faulty"); !apierrors.IsConflict(err) {
		t.Errorf("the first: %v", err)
	}
	check(t, patch("faulty"))
	if err := patch("other"); !apierrors.IsForbidden(err) {
		t.Errorf("another node: %v", err)
	}
	watching(t, c, nodes)
}

// watching starts a watch and returns after a cut has ended it.
func watching(t *testing.T, c *Cluster, nodes interface {
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}) {
	t.Helper()
	w, err := nodes.Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=faulty"})
	check(t, err)
	defer w.Stop()
	if event := <-w.ResultChan(); event.Type != watch.Added {
		t.Fatalf("the watch began with %v", event)
	}
	c.CutConnections()
	for event := range w.ResultChan() {
		if event.Type != watch.Modified && event.Type != watch.Error {
			t.Errorf("after the cut: %v", event)
		}
	}
}

func TestDisconnect(t *testing.T) {
	c := shared.Cluster(t)
	nodes := clientFor(t, c.NodeConfig("distant")).CoreV1().Nodes()
	get := func(patience time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if _, err := nodes.Get(ctx, "distant", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return cmp.Or(err, errors.New("a node without a Node object"))
		}
		return nil
	}
	check(t, get(startup))
	c.Disconnect()
	if get(time.Second) == nil {
		t.Error("a node reached the API server")
	}
	c.Kubectl("version")
	c.Connect()
	check(t, get(startup))
}

func TestVersionAndAPIs(t *testing.T) {
	c := shared.Cluster(t)
	version, err := c.Client().Discovery().ServerVersion()
	check(t, err)
	if version.GitVersion != "v1.36.3" {
		t.Errorf("version %s", version.GitVersion)
	}
	for _, kind := range []string{"clustertrustbundles.v1beta1.certificates.k8s.io",
		"resourceclaims.v1.resource.k8s.io", "csinodes.v1.storage.k8s.io"} {
		if out := c.Kubectl("get", kind, "-A"); out != "" {
			t.Errorf("%s: %s", kind, out)
		}
	}
}

// The control plane survives a crash of the API server and a pause of etcd. At its end nothing is left.
func TestLife(t *testing.T) {
	var c *Cluster
	var pids []int
	if !t.Run("cluster", func(t *testing.T) {
		c = Start(t, Options{Controllers: true, Scheduler: true})
		for _, p := range []*process{c.servers.scheduler, c.servers.controllers, c.servers.api, c.servers.etcd} {
			pids = append(pids, p.cmd.Process.Pid)
		}
		namespace := c.Namespace()
		c.KillAPIServer()
		c.StartAPIServer()
		pids = append(pids, c.servers.api.cmd.Process.Pid)
		c.Kubectl("get", "namespace", namespace)
		c.Pause(Etcd)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.Client().CoreV1().ConfigMaps(namespace).Create(ctx,
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
		if err == nil {
			t.Error("written without etcd")
		}
		c.Resume(Etcd)
		join(t, c)
	}) {
		return
	}
	for _, pid := range pids {
		if err := unix.Kill(pid, 0); !errors.Is(err, unix.ESRCH) {
			t.Errorf("process %d: %v", pid, err)
		}
	}
	if _, err := os.Stat(c.servers.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s: %v", c.servers.dir, err)
	}
}

// join gets a certificate like a new node.
func join(t *testing.T, c *Cluster) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	id := Node("joining")
	der, err := x509.CreateCertificateRequest(rand.Reader,
		&x509.CertificateRequest{Subject: pkix.Name{CommonName: id.User, Organization: id.Groups}}, key)
	check(t, err)
	requests := fromFile(t, c.BootstrapKubeconfig()).CertificatesV1().CertificateSigningRequests()
	csr, err := requests.Create(t.Context(), &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "joining"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}, metav1.CreateOptions{})
	check(t, err)
	c.Kubectl("wait", "--for=jsonpath={.status.certificate}", "--timeout="+startup.String(), "csr/joining")
	csr, err = requests.Get(t.Context(), csr.Name, metav1.GetOptions{})
	check(t, err)
	secret, err := keyPEM(key)
	check(t, err)
	config := c.NodeConfig("joining")
	config.CertData, config.KeyData = csr.Status.Certificate, secret
	_, err = clientFor(t, config).CoreV1().Nodes().Create(t.Context(),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "joining"}}, metav1.CreateOptions{})
	check(t, err)
}
