package objects_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-run/berth/internal/base/looptest"
	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/cluster/kubeapi/kubeapitest"
	"github.com/berth-run/berth/internal/cluster/objects"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/pod"
)

var shared = kubeapitest.NewShared(kubeapitest.Options{})

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }

// patience is the longest wait for something that happens at once unless the machine is busy.
const patience = 30 * time.Second

// node is a node of a real control plane with its own credentials.
type node struct {
	*objects.Cluster
	*object.Objects
	t         *testing.T
	api       *kubeapitest.Cluster
	admin     kubernetes.Interface
	namespace string
	pods      *store.Table[types.UID, *pod.Pod]
	table     *object.Table
	changed   chan struct{}

	mu   sync.Mutex
	urls []string
}

type sink struct{ *object.Table }

func (s sink) Put(v object.Value)  { s.Table.Put(object.KeyOf(v), v) }
func (s sink) Drop(key object.Key) { s.Delete(key) }

// record records the requests of the node.
type record struct {
	http.RoundTripper
	note func(string)
}

func (r record) RoundTrip(request *http.Request) (*http.Response, error) {
	r.note(request.URL.Path + "?" + request.URL.RawQuery)
	return r.RoundTripper.RoundTrip(request)
}

func join(t *testing.T, api *kubeapitest.Cluster, edit func(*objects.Config)) *node {
	n := &node{t: t, api: api, admin: api.Client(), namespace: api.Namespace(), pods: store.New[types.UID, *pod.Pod](),
		table: store.New[object.Key, runtime.Object](), changed: make(chan struct{}, 1)}
	config := api.NodeConfig("node-" + n.namespace)
	config.QPS = -1
	config.Wrap(func(inner http.RoundTripper) http.RoundTripper {
		return record{inner, func(url string) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.urls = append(n.urls, url)
		}}
	})
	client, err := kubernetes.NewForConfig(config)
	check(t, err)
	c := objects.Config{Client: client, Pods: n.pods, Sink: sink{n.table}, Log: slog.New(slog.DiscardHandler),
		Changed: changed(n.wake)}
	if edit != nil {
		edit(&c)
	}
	n.Cluster = objects.New(c)
	n.Objects = object.Joined(n.table, n.Received)
	t.Cleanup(looptest.Start(t, n.Run, context.Canceled))
	return n
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (n *node) wake() {
	select {
	case n.changed <- struct{}{}:
	default:
	}
}

// until waits for a condition. It is checked after each change of the table and each call of Changed.
func (n *node) until(what string, reached func() bool) {
	n.t.Helper()
	watch := n.table.Watch()
	defer watch.Stop()
	timeout := time.After(patience)
	for !reached() {
		select {
		case <-watch.C():
			watch.Changes()
		case <-n.changed:
		case <-timeout:
			n.t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// requests returns the requests whose path has all of these parts.
func (n *node) requests(parts ...string) (count int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, url := range n.urls {
		if !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(url, p) }) {
			count++
		}
	}
	return count
}

func podWith(spec corev1.PodSpec) *corev1.Pod {
	spec.Containers = []corev1.Container{{Name: "c", Image: "example.com/workload:1"}}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "p-"}, Spec: spec}
}

// bind creates a pod of this node at the API server.
func (n *node) bind(p *corev1.Pod) *corev1.Pod {
	n.t.Helper()
	p.Spec.NodeName = "node-" + n.namespace
	p, err := n.admin.CoreV1().Pods(n.namespace).Create(n.t.Context(), p, metav1.CreateOptions{})
	check(n.t, err)
	return p
}

func (n *node) wants(p *corev1.Pod) { n.pods.Put(p.UID, &pod.Pod{Pod: p, Source: pod.SourceAPI}) }

func secretVolume(name string) corev1.PodSpec {
	return corev1.PodSpec{Volumes: []corev1.Volume{{Name: "v",
		VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name}}}}}
}

func (n *node) setSecret(name, value string, immutable bool) {
	n.t.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{"k": []byte(value)},
		Immutable: &immutable}
	_, err := n.admin.CoreV1().Secrets(n.namespace).Update(n.t.Context(), s, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = n.admin.CoreV1().Secrets(n.namespace).Create(n.t.Context(), s, metav1.CreateOptions{})
	}
	check(n.t, err)
}

// has reports whether the Secret has a value on the node.
func (n *node) has(name, value string) func() bool {
	return func() bool {
		s, err := n.Secret(n.namespace, name)
		return err == nil && string(s.Data["k"]) == value
	}
}

func (n *node) secretKey(name string) object.Key {
	return object.Key{Kind: object.Secret, Namespace: n.namespace, Name: name}
}

func TestSecretIsFollowedFromTheFirstPodToTheLast(t *testing.T) {
	n := join(t, shared.Cluster(t), nil)
	n.setSecret("s", "1", false)
	_, err := n.Secret(n.namespace, "s")
	if _, unknown := errors.AsType[*object.Unknown](err); !unknown {
		t.Fatalf("before any pod: %v", err)
	}
	one, two := n.bind(podWith(secretVolume("s"))), n.bind(podWith(secretVolume("s")))
	n.wants(one)
	n.until("the Secret is read", n.has("s", "1"))
	n.wants(two)
	begin := time.Now()
	n.setSecret("s", "2", false)
	n.until("an edit is seen", n.has("s", "2"))
	t.Logf("an edit was seen after %v", time.Since(begin))
	if s, _ := n.Secret(n.namespace, "s"); len(s.ManagedFields) > 0 {
		t.Error("it has managedFields")
	}

	check(t, n.admin.CoreV1().Secrets(n.namespace).Delete(t.Context(), "s", metav1.DeleteOptions{}))
	n.until("its deletion is seen", func() bool {
		_, err := n.Secret(n.namespace, "s")
		_, missing := errors.AsType[*object.Missing](err)
		return missing
	})
	n.setSecret("s", "3", false)
	n.until("it exists again", n.has("s", "3"))
	if lists, watches := n.requests("/secrets?", "name%3Ds", "watch"),
		n.requests("/secrets?", "name%3Ds"); lists != 1 || watches != 2 {
		t.Errorf("%d requests, %d of them watches: want one list and one watch", watches, lists)
	}

	n.pods.Delete(one.UID)
	n.pods.Delete(two.UID)
	n.until("it is forgotten with the last pod", func() bool {
		return !n.Received(n.secretKey("s")) && n.table.Len() == 0
	})
}

func TestAMissingObjectIsReceived(t *testing.T) {
	n := join(t, shared.Cluster(t), nil)
	n.wants(n.bind(podWith(secretVolume("none"))))
	n.until("it is known to be missing", func() bool { return n.Received(n.secretKey("none")) })
	if _, err := n.Secret(n.namespace, "none"); err == nil || err.Error() != "waiting for Secret "+n.namespace+"/none" {
		t.Errorf("got %v", err)
	}
}

func TestARefusedReadIsRetried(t *testing.T) {
	n := join(t, shared.Cluster(t), nil)
	n.setSecret("s", "1", false)
	early := podWith(secretVolume("s"))
	early.Namespace, early.UID = n.namespace, "not-there-yet"
	n.wants(early)
	n.until("it is refused", func() bool {
		defer time.AfterFunc(20*time.Millisecond, n.wake)
		return apierrors.IsForbidden(n.Trouble(n.secretKey("s")))
	})
	if n.Received(n.secretKey("s")) {
		t.Error("a refusal counts as an answer")
	}
	n.bind(podWith(secretVolume("s")))
	n.until("it is allowed", n.has("s", "1"))
}

func TestAnObjectIsFollowedAcrossCutWatches(t *testing.T) {
	n := join(t, shared.Cluster(t), nil)
	n.setSecret("s", "1", false)
	n.wants(n.bind(podWith(secretVolume("s"))))
	n.until("the Secret is read", n.has("s", "1"))
	n.api.CutConnections()
	n.setSecret("s", "2", false)
	n.until("an edit after a cut", n.has("s", "2"))

	n.api.Disconnect()
	n.setSecret("s", "3", false)
	if !n.has("s", "2")() {
		t.Error("what was read is gone with the API server")
	}
	n.api.Connect()
	n.until("an edit while it was away", n.has("s", "3"))
}

func TestAnObjectIsFollowedAcrossARestartOfTheAPIServer(t *testing.T) {
	n := join(t, kubeapitest.Start(t, kubeapitest.Options{}), nil)
	n.setSecret("s", "1", false)
	n.wants(n.bind(podWith(secretVolume("s"))))
	n.until("the Secret is read", n.has("s", "1"))
	n.api.KillAPIServer()
	n.api.StartAPIServer()
	n.setSecret("s", "2", false)
	n.until("an edit after the restart", n.has("s", "2"))
}

func TestImmutableIsNotWatched(t *testing.T) {
	n := join(t, shared.Cluster(t), nil)
	n.setSecret("fixed", "1", true)
	n.setSecret("s", "1", false)
	n.wants(n.bind(podWith(secretVolume("fixed"))))
	n.wants(n.bind(podWith(secretVolume("s"))))
	n.until("both are read", func() bool { return n.has("fixed", "1")() && n.has("s", "1")() })
	n.setSecret("s", "2", false)
	n.until("the other is watched", n.has("s", "2"))
	if count := n.requests("name%3Dfixed"); count != 1 {
		t.Errorf("%d requests for the immutable one, want one", count)
	}
}

func TestStrategies(t *testing.T) {
	cache := func(ttl string) func(*objects.Config) {
		return func(c *objects.Config) {
			n := &corev1.Node{}
			n.Annotations = map[string]string{corev1.ObjectTTLAnnotationKey: ttl}
			c.Strategy, c.NodeName, c.Nodes = objects.Cache, "n1", store.New[string, *corev1.Node]()
			c.Nodes.Put("n1", n)
			c.Sync = 50 * time.Millisecond
		}
	}
	for name, edit := range map[string]func(*objects.Config){
		"Cache": cache("0.1"), "Cache in a small cluster": cache("0"),
		"Get": func(c *objects.Config) { c.Strategy, c.Sync = objects.Get, 50*time.Millisecond },
	} {
		t.Run(name, func(t *testing.T) {
			n := join(t, shared.Cluster(t), edit)
			n.setSecret("s", "1", false)
			n.wants(n.bind(podWith(secretVolume("s"))))
			n.until("the Secret is read", n.has("s", "1"))
			n.setSecret("s", "2", false)
			n.until("an edit is read", n.has("s", "2"))
			if n.requests("/secrets", "watch") > 0 {
				t.Error("it is watched")
			}
		})
	}
}

func TestServices(t *testing.T) {
	n := join(t, shared.Cluster(t), nil)
	linked := n.bind(podWith(corev1.PodSpec{}))
	n.wants(linked)
	names := func() string {
		services, err := n.Services(linked)
		if err != nil {
			return err.Error()
		}
		var all []string
		for _, s := range services {
			all = append(all, s.Name)
		}
		return strings.Join(all, " ")
	}
	n.until("the API server's service", func() bool { return names() == "kubernetes" })
	_, err := n.admin.CoreV1().Services(n.namespace).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "db"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 5432}}}},
		metav1.CreateOptions{})
	check(t, err)
	n.until("a service of the namespace", func() bool { return names() == "kubernetes db" })
	check(t, n.admin.CoreV1().Services(n.namespace).Delete(t.Context(), "db", metav1.DeleteOptions{}))
	n.until("it is gone", func() bool { return names() == "kubernetes" })
}

func TestClaimLeadsToItsVolume(t *testing.T) {
	n := join(t, shared.Cluster(t), nil)
	core, name := n.admin.CoreV1(), n.namespace+"-pv"
	gig := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claim, err := core.PersistentVolumeClaims(n.namespace).Create(t.Context(),
		&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data"},
			Spec: corev1.PersistentVolumeClaimSpec{AccessModes: modes, StorageClassName: new(""), VolumeName: name,
				Resources: corev1.VolumeResourceRequirements{Requests: gig}}}, metav1.CreateOptions{})
	check(t, err)
	n.wants(n.bind(podWith(corev1.PodSpec{Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}})))
	n.until("the claim is read", func() bool {
		_, err := n.PersistentVolumeClaim(n.namespace, "data")
		return err == nil
	})
	volume, err := core.PersistentVolumes().Create(t.Context(),
		&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
			AccessModes: modes, Capacity: gig,
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/srv"}},
			ClaimRef:               &corev1.ObjectReference{Namespace: n.namespace, Name: "data", UID: claim.UID}}},
		metav1.CreateOptions{})
	check(t, err)
	volume.Status.Phase, claim.Status.Phase = corev1.VolumeBound, corev1.ClaimBound
	_, err = core.PersistentVolumes().UpdateStatus(t.Context(), volume, metav1.UpdateOptions{})
	check(t, err)
	_, err = core.PersistentVolumeClaims(n.namespace).UpdateStatus(t.Context(), claim, metav1.UpdateOptions{})
	check(t, err)
	n.until("the claim's volume is read", func() bool {
		v, err := n.PersistentVolume(name)
		return err == nil && v.Spec.HostPath != nil
	})
	for uid := range maps.All(maps.Collect(n.pods.Snapshot().All())) {
		n.pods.Delete(uid)
	}
	n.until("both are forgotten", func() bool { return n.table.Len() == 0 })
}

func TestBundles(t *testing.T) {
	n := join(t, shared.Cluster(t), nil)
	n.wants(
		n.bind(
			podWith(
				corev1.PodSpec{Volumes: []corev1.Volume{{Name: "v",
					VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
						Sources: []corev1.VolumeProjection{
							{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{Name: new("trust"),
								Path: "ca.crt", Optional: new(true)}}}}}}}})))
	has := func(name string) func() bool {
		return func() bool {
			all, err := n.Bundles()
			return err == nil &&
				(name == "" ||
					slices.ContainsFunc(all, func(b *certificatesv1beta1.ClusterTrustBundle) bool {
						return b.Name == name
					}))
		}
	}
	n.until("bundles are read", has(""))
	ca, err := os.ReadFile(n.api.CA())
	check(t, err)
	_, err = n.admin.CertificatesV1beta1().ClusterTrustBundles().Create(t.Context(),
		&certificatesv1beta1.ClusterTrustBundle{
			ObjectMeta: metav1.ObjectMeta{Name: "trust"},
			Spec:       certificatesv1beta1.ClusterTrustBundleSpec{TrustBundle: string(ca)}}, metav1.CreateOptions{})
	check(t, err)
	n.until("a new one is seen", has("trust"))
}

func TestPodsOfManifestsDoNotWaitForTheCluster(t *testing.T) {
	n := join(t, shared.Cluster(t), nil)
	p := podWith(secretVolume("s"))
	p.Namespace, p.UID, p.Annotations = n.namespace, "static",
		map[string]string{pod.AnnotationConfigSource: string(pod.SourceFile)}
	if _, err := n.Services(p); err != nil {
		t.Errorf("services: %v", err)
	}
	n.pods.Put(p.UID, &pod.Pod{Pod: p, Source: pod.SourceFile})
	n.until("the Secret counts as received", func() bool { return n.Received(n.secretKey("s")) })
	if n.requests("/secrets") > 0 {
		t.Error("the Secret was requested from the API server")
	}
}

// changed is called for changes that the table does not show.
type changed func()

func (c changed) AddAll(map[object.Key]bool) { c() }
