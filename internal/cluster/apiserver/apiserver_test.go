package apiserver

import (
	"context"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-run/berth/internal/base/looptest"
	"github.com/berth-run/berth/internal/cluster/kubeapi/kubeapitest"
)

// patience is the longest wait of a test. A wait that long means failure.
const patience = time.Minute

var shared = kubeapitest.NewShared(kubeapitest.Options{})

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }

// seen is a sink that stores its pods.
type seen struct {
	mu      sync.Mutex
	pods    map[string]*corev1.Pod
	lists   int
	changed chan struct{}
}

func (s *seen) update(change func()) {
	s.mu.Lock()
	change()
	s.mu.Unlock()
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func (s *seen) Replace(pods []*corev1.Pod) {
	s.update(func() {
		s.lists++
		clear(s.pods)
		for _, p := range pods {
			s.pods[p.Name] = p
		}
	})
}

func (s *seen) Put(p *corev1.Pod)  { s.update(func() { s.pods[p.Name] = p }) }
func (s *seen) Drop(p *corev1.Pod) { s.update(func() { delete(s.pods, p.Name) }) }

// await waits until the sink has received a list and has exactly these pods, identified by their label "v".
func (s *seen) await(t *testing.T, want map[string]string) {
	t.Helper()
	timeout := time.After(patience)
	for {
		got, lists := map[string]string{}, 0
		s.update(func() {
			lists = s.lists
			for name, p := range s.pods {
				got[name] = p.Labels["v"]
			}
		})
		if lists > 0 && maps.Equal(got, want) {
			return
		}
		select {
		case <-s.changed:
		case <-timeout:
			t.Fatalf("pods (-want +got):\n%s", cmp.Diff(want, got))
		}
	}
}

// world is a namespace, and a node whose pods are watched.
type world struct {
	*kubeapitest.Cluster
	t         *testing.T
	node      string
	namespace string
	admin     kubernetes.Interface
	seen      *seen
}

func start(t *testing.T, node string) *world {
	c := shared.Cluster(t)
	w := &world{Cluster: c, t: t, node: node, namespace: c.Namespace(), admin: c.Client(),
		seen: &seen{pods: map[string]*corev1.Pod{}, changed: make(chan struct{}, 1)}}
	client, err := kubernetes.NewForConfig(c.NodeConfig(node))
	w.must(err)
	watch := New(Options{Client: client, NodeName: node, Sink: w.seen})
	t.Cleanup(looptest.Start(t, watch.Run, context.Canceled))
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) create(name, node string) {
	w.t.Helper()
	_, err := w.admin.CoreV1().Pods(w.namespace).Create(w.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"v": "1"}},
		Spec: corev1.PodSpec{NodeName: node,
			Containers: []corev1.Container{{Name: "app", Image: "example.com/workload:1"}}},
	}, metav1.CreateOptions{})
	w.must(err)
}

func (w *world) label(name, v string) {
	w.t.Helper()
	_, err := w.admin.CoreV1().Pods(w.namespace).Patch(w.t.Context(), name, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"v":"`+v+`"}}}`), metav1.PatchOptions{})
	w.must(err)
}

func (w *world) delete(name string, grace int64) {
	w.t.Helper()
	w.must(w.admin.CoreV1().Pods(w.namespace).Delete(w.t.Context(), name,
		metav1.DeleteOptions{GracePeriodSeconds: &grace}))
}

// Pods of this node are added, changed, marked as deleted and removed. Pods of other nodes never appear.
func TestWatchFollowsOnlyThePodsOfTheNode(t *testing.T) {
	w := start(t, "watched")
	w.seen.await(t, map[string]string{})
	w.create("mine", w.node)
	w.create("other", "another")
	w.create("unbound", "")
	w.seen.await(t, map[string]string{"mine": "1"})
	w.label("mine", "2")
	w.seen.await(t, map[string]string{"mine": "2"})
	w.delete("mine", 30)
	w.label("mine", "3")
	w.seen.await(t, map[string]string{"mine": "3"})
	p := w.seen.pods["mine"]
	if p.DeletionTimestamp == nil || *p.DeletionGracePeriodSeconds != 30 || p.ResourceVersion == "" || p.UID == "" ||
		p.ManagedFields != nil {
		t.Errorf("metadata of the pod: %+v", p.ObjectMeta)
	}
	w.delete("mine", 0)
	w.seen.await(t, map[string]string{})
}

// Changes made while watches are cut, refused or too old arrive afterwards.
func TestWatchRecoversFromFaults(t *testing.T) {
	ofPods := func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/api/v1/pods") }
	t.Cleanup(func() { shared.Cluster(t).Inject() })
	for name, fault := range map[string]func(w *world) (mend func()){
		"cut":          func(w *world) func() { w.CutConnections(); return func() {} },
		"disconnected": func(w *world) func() { w.Disconnect(); return w.Connect },
		"too old": func(w *world) func() {
			w.Inject(kubeapitest.Fault{Match: ofPods, Times: 1, Code: http.StatusGone,
				Reason: metav1.StatusReasonExpired})
			return func() {}
		},
		"too many": func(w *world) func() {
			w.Inject(kubeapitest.Fault{Match: ofPods, Times: 3, Code: http.StatusTooManyRequests,
				Reason: metav1.StatusReasonTooManyRequests, RetryAfter: 1})
			return func() {}
		},
		"broken": func(w *world) func() {
			w.Inject(kubeapitest.Fault{Match: ofPods, Code: http.StatusInternalServerError,
				Reason: metav1.StatusReasonInternalError})
			return func() { w.Inject() }
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t, "fault-"+strings.ReplaceAll(name, " ", "-"))
			for _, name := range []string{"stays", "changes", "goes"} {
				w.create(name, w.node)
			}
			w.seen.await(t, map[string]string{"stays": "1", "changes": "1", "goes": "1"})
			mend := fault(w)
			w.label("changes", "2")
			w.delete("goes", 0)
			w.create("comes", w.node)
			mend()
			w.seen.await(t, map[string]string{"stays": "1", "changes": "2", "comes": "1"})
		})
	}
}

// The watch continues after a restart of the API server.
func TestWatchContinuesAfterARestartOfTheAPIServer(t *testing.T) {
	w := start(t, "restarted")
	w.create("mine", w.node)
	w.seen.await(t, map[string]string{"mine": "1"})
	w.KillAPIServer()
	w.StartAPIServer()
	w.label("mine", "2")
	w.seen.await(t, map[string]string{"mine": "2"})
	if names := slices.Collect(maps.Keys(w.seen.pods)); len(names) != 1 {
		t.Errorf("pods are %v", names)
	}
}
