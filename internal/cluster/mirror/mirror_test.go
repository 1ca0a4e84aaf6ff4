package mirror

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/cluster/apiserver"
	"github.com/berth-run/berth/internal/cluster/kubeapi/kubeapitest"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/source"
)

// patience is the longest wait of a test. A wait that long means failure.
const patience = time.Minute

var shared = kubeapitest.NewShared(kubeapitest.Options{})

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }

// world is a node with a directory of manifests and a watch on its mirror pods.
type world struct {
	*kubeapitest.Cluster
	t               *testing.T
	node, namespace string
	dir             string
	admin           kubernetes.Interface
	watch           watch.Interface
	sources         *source.Sources
	mirrors         *Mirrors
	nodes           *store.Table[string, *corev1.Node]
	changed         marks
}

func start(t *testing.T, node string) *world {
	c := shared.Cluster(t)
	w := &world{Cluster: c, t: t, node: node, namespace: c.Namespace(), dir: t.TempDir(), admin: c.Client(),
		nodes: store.New[string, *corev1.Node](), changed: make(marks, 100)}
	var err error
	w.watch, err = w.admin.CoreV1().Pods(w.namespace).Watch(t.Context(), metav1.ListOptions{})
	w.must(err)
	client, err := kubernetes.NewForConfig(c.NodeConfig(node))
	w.must(err)
	w.sources = source.New(source.Options{
		NodeName: node, Path: w.dir, Period: time.Hour, Applied: filepath.Join(t.TempDir(), "applied"), Cluster: true,
		Report: silent{}, Node: everyPod{}, Log: slog.New(slog.DiscardHandler),
	})
	w.mirrors = New(Options{
		Client: client, NodeName: node, Desired: w.sources.Desired, Mirrors: w.sources.Cluster.Mirrors,
		Synced: w.sources.Synced(),
		Nodes:  w.nodes, Stale: w.changed, Now: time.Now, Log: slog.New(slog.DiscardHandler),
	})
	pods := apiserver.New(apiserver.Options{Client: client, NodeName: node, Sink: w.sources.Cluster})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for _, run := range []func(context.Context) error{w.sources.Run, pods.Run, w.mirrors.Run} {
		wg.Go(func() {
			if err := run(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("a part returned %v", err)
			}
		})
	}
	t.Cleanup(func() { cancel(); wg.Wait(); w.watch.Stop() })
	return w
}

type everyPod struct{}

func (everyPod) Working(types.UID) bool { return true }

// marks receives the pods whose mirror pod has changed.
type marks chan types.UID

func (m marks) Mark(uid types.UID) { m <- uid }

type silent struct{}

func (silent) SourceProblem(source.Problem) {}

func (silent) SourceResolved(source.Problem) {}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) register() {
	w.t.Helper()
	n, err := w.admin.CoreV1().Nodes().Create(w.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.node}},
		metav1.CreateOptions{})
	w.must(err)
	w.nodes.Put(w.node, n)
}

func (w *world) manifest(name, image, more string) {
	w.t.Helper()
	w.must(os.WriteFile(filepath.Join(w.dir, name+".yaml"),
		[]byte("apiVersion: v1\nkind: Pod\nmetadata: {name: "+name+", namespace: "+w.namespace+
			"}\nspec:\n  containers: [{name: app, image: '"+image+"'"+more+"}]\n"), 0o644))
}

// await waits until want returns true for an event.
func (w *world) await(want func(watch.Event, *corev1.Pod) bool) *corev1.Pod {
	w.t.Helper()
	for timeout := time.After(patience); ; {
		select {
		case e, open := <-w.watch.ResultChan():
			if !open {
				w.t.Fatal("the watch has ended")
			}
			if p, ok := e.Object.(*corev1.Pod); ok && want(e, p) {
				return p
			}
		case <-timeout:
			w.t.Fatal("the event never came")
		}
	}
}

func (w *world) awaitAdded(name, image string) *corev1.Pod {
	w.t.Helper()
	return w.await(func(e watch.Event, p *corev1.Pod) bool {
		return e.Type == watch.Added && p.Name == name+"-"+w.node && p.Spec.Containers[0].Image == image
	})
}

// static returns the static pod of a mirror pod.
func (w *world) static(mirror *corev1.Pod) *pod.Pod {
	w.t.Helper()
	for _, p := range w.sources.Desired.Snapshot().All() {
		if p.Name == mirror.Name {
			return p
		}
	}
	w.t.Fatalf("no static pod %s", mirror.Name)
	return nil
}

// awaitKnown waits until a static pod is known to have this mirror pod.
func (w *world) awaitKnown(uid types.UID, mirror types.UID) {
	w.t.Helper()
	for timeout := time.After(patience); ; {
		p, ok := w.mirrors.Mirror(uid)
		if ok && p.UID == mirror || !ok && mirror == "" {
			return
		}
		select {
		case <-w.changed:
		case <-timeout:
			w.t.Fatalf("the mirror pod is not %q", mirror)
		}
	}
}

// A static pod gets a mirror pod when the node is registered, and again after a deletion of the mirror pod. It gets a
// new one when its manifest changes. Without a manifest the mirror pod is deleted.
func TestAMirrorPodFollowsItsManifest(t *testing.T) {
	w := start(t, "life")
	w.manifest("web", "example.com/web:1", "")
	w.register()
	first := w.awaitAdded("web", "example.com/web:1")
	static := w.static(first)
	w.awaitKnown(static.UID, first.UID)
	if owner := first.OwnerReferences; len(owner) != 1 || owner[0].Kind != "Node" || owner[0].Name != w.node {
		t.Errorf("owners of the mirror pod: %v", owner)
	}

	w.must(w.admin.CoreV1().Pods(w.namespace).Delete(t.Context(), first.Name, metav1.DeleteOptions{}))
	second := w.awaitAdded("web", "example.com/web:1")
	w.awaitKnown(static.UID, second.UID)
	if _, ok := w.sources.Desired.Get(static.UID); !ok || first.UID == second.UID {
		t.Error("the static pod ended with what shows it")
	}

	w.manifest("web", "example.com/web:2", "")
	third := w.awaitAdded("web", "example.com/web:2")
	w.awaitKnown(w.static(third).UID, third.UID)
	w.awaitKnown(static.UID, "")

	w.must(os.Remove(filepath.Join(w.dir, "web.yaml")))
	w.await(func(e watch.Event, p *corev1.Pod) bool { return e.Type == watch.Deleted && p.UID == third.UID })
}

// A change of resources keeps the static pod's hash, but replaces the mirror pod.
func TestNewResourcesReplaceTheMirrorPod(t *testing.T) {
	w := start(t, "resized")
	w.register()
	w.manifest("web", "example.com/web:1", ", resources: {requests: {cpu: 100m}}")
	first := w.awaitAdded("web", "example.com/web:1")
	uid := w.static(first).UID
	w.awaitKnown(uid, first.UID)
	w.manifest("web", "example.com/web:1", ", resources: {requests: {cpu: 200m}}")
	second := w.awaitAdded("web", "example.com/web:1")
	if got := second.Spec.Containers[0].Resources.Requests.Cpu().String(); got != "200m" {
		t.Errorf("the mirror pod has %s", got)
	}
	w.awaitKnown(uid, second.UID)
}

// A refused mirror pod delays no other. Mirror pods that failed while the API server was away are created when it is
// back. The static pods stay in the table of desired pods all the time.
func TestFailuresDelayNoOtherMirrorPod(t *testing.T) {
	w := start(t, "faults")
	t.Cleanup(func() { w.Inject() })
	w.register()
	w.manifest("refused", "example.com/web:1", ", envFrom: [{configMapRef: {name: app}}]")
	w.manifest("web", "example.com/web:1", "")
	w.awaitAdded("web", "example.com/web:1")

	w.Inject(kubeapitest.Fault{Match: func(r *http.Request) bool {
		return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/pods")
	}, Times: 2, Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests})
	w.manifest("late", "example.com/web:1", "")
	w.awaitAdded("late", "example.com/web:1")

	w.Disconnect()
	w.manifest("web", "example.com/web:2", "")
	w.Connect()
	w.awaitAdded("web", "example.com/web:2")
	if n := w.sources.Desired.Len(); n != 3 {
		t.Errorf("%d desired static pods", n)
	}
}

// A mirror pod of an earlier agent is deleted if it has no manifest any longer.
func TestAMirrorPodWithoutManifestIsDeleted(t *testing.T) {
	w := start(t, "leftover")
	w.register()
	node, _ := w.nodes.Get(w.node)
	left := copyOf(staticPod("hash", "1"), w.node, node.UID)
	left.Namespace = w.namespace
	made, err := w.admin.CoreV1().Pods(w.namespace).Create(t.Context(), left, metav1.CreateOptions{})
	w.must(err)
	w.await(func(e watch.Event, p *corev1.Pod) bool { return e.Type == watch.Deleted && p.UID == made.UID })
}

// The node lifecycle controller, for example, marks pods as not ready while it does not hear of the node.
func TestAStatusOfAnotherWriterIsPublishedAgain(t *testing.T) {
	w := start(t, "other")
	w.manifest("web", "example.com/web:1", "")
	w.register()
	mirror := w.awaitAdded("web", "example.com/web:1")
	uid := w.static(mirror).UID
	w.awaitKnown(uid, mirror.UID)
	mirror.Status.Message = "written by a controller"
	_, err := w.admin.CoreV1().Pods(w.namespace).UpdateStatus(t.Context(), mirror, metav1.UpdateOptions{})
	w.must(err)
	for timeout := time.After(patience); ; {
		select {
		case got := <-w.changed:
			if now, _ := w.mirrors.Mirror(uid); got == uid && now != nil &&
				now.Status.Message == mirror.Status.Message {
				return
			}
		case <-timeout:
			t.Fatal("the status that another writer changed is not published again")
		}
	}
}
