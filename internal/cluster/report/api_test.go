package report

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/berth-run/berth/internal/cluster/kubeapi/kubeapitest"
	"github.com/berth-run/berth/internal/model/pod"
)

var shared = kubeapitest.NewShared(kubeapitest.Options{})

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }

// node writes the statuses of its pods. The objects come from a watch, the statuses from the test.
type node struct {
	*testing.T
	cluster   *kubeapitest.Cluster
	admin     kubernetes.Interface
	name      string
	namespace string
	writer    *Writer

	mu      sync.Mutex
	rows    map[types.UID]Row
	seen    map[types.UID][]*corev1.Pod // all objects of the watch, in order
	dropped []types.UID
	news    chan struct{} // closed at each change of seen
}

func newNode(t *testing.T, name string) *node {
	t.Helper()
	c := shared.Cluster(t)
	t.Cleanup(func() { c.Inject() })
	client, err := kubernetes.NewForConfig(c.NodeConfig(name))
	if err != nil {
		t.Fatal(err)
	}
	n := &node{T: t, cluster: c, admin: c.Client(), name: name, namespace: c.Namespace(),
		rows: map[types.UID]Row{}, seen: map[types.UID][]*corev1.Pod{}, news: make(chan struct{})}
	n.writer = New(Options{Client: client, Log: slog.New(slog.DiscardHandler), Dropped: func(r Row) {
		n.change(func() { n.dropped = append(n.dropped, r.UID) })
	}})
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	t.Cleanup(func() { cancel(); all.Wait() })
	all.Go(func() { _ = n.writer.Run(ctx) }) // with the error of ctx
	lw := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "pods", "",
		fields.OneTermEqualSelector("spec.nodeName", name))
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{ListerWatcher: lw, ObjectType: &corev1.Pod{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { n.receive(o.(*corev1.Pod)) },
			UpdateFunc: func(_, o any) { n.receive(o.(*corev1.Pod)) },
		}})
	all.Go(func() { informer.Run(ctx.Done()) })
	return n
}

func (n *node) change(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
	close(n.news)
	n.news = make(chan struct{})
}

func (n *node) receive(p *corev1.Pod) {
	n.change(func() {
		n.seen[p.UID] = append(n.seen[p.UID], p)
		if r, ok := n.rows[p.UID]; ok {
			r.Pod = p
			n.rows[p.UID] = r
			n.writer.Set(r)
		}
	})
}

// set queues a status.
func (n *node) set(p *corev1.Pod, s corev1.PodStatus, gone bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	r := Row{UID: p.UID, Pod: p, Status: s, Gone: gone}
	if last := n.seen[p.UID]; len(last) > 0 {
		r.Pod = last[len(last)-1]
	}
	n.rows[p.UID] = r
	n.writer.Set(r)
}

// until waits for a condition. It calls done with the lock held.
func (n *node) until(what string, done func() bool) {
	n.Helper()
	late := time.After(time.Minute)
	for {
		n.mu.Lock()
		ok, news := done(), n.news
		n.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-news:
		case <-late:
			n.Fatalf("waited too long for %s; %+v", what, n.writer.Stats())
		}
	}
}

// shows waits until the pod in the API server satisfies ok.
func (n *node) shows(p *corev1.Pod, what string, ok func(*corev1.Pod) bool) *corev1.Pod {
	n.Helper()
	var last *corev1.Pod
	n.until(what, func() bool {
		seen := n.seen[p.UID]
		if len(seen) == 0 {
			return false
		}
		last = seen[len(seen)-1]
		return ok(last)
	})
	return last
}

func (n *node) pod(name string, change func(*corev1.Pod)) *corev1.Pod {
	n.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: n.namespace},
		Spec: corev1.PodSpec{NodeName: n.name, Containers: []corev1.Container{{Name: "app", Image: "img"}}}}
	if change != nil {
		change(p)
	}
	made, err := n.admin.CoreV1().Pods(n.namespace).Create(n.Context(), p, metav1.CreateOptions{})
	if err != nil {
		n.Fatal(err)
	}
	return made
}

// status returns state number i of a pod. The restart count of its container is the number.
func status(i int, phase corev1.PodPhase, isReady bool) corev1.PodStatus {
	is := corev1.ConditionFalse
	if isReady {
		is = corev1.ConditionTrue
	}
	s := corev1.PodStatus{Phase: phase, StartTime: new(at(0)), HostIP: "192.0.2.1",
		HostIPs: []corev1.HostIP{{IP: "192.0.2.1"}}, Conditions: []corev1.PodCondition{
			cond(corev1.PodInitialized, "True", "", 1), cond(corev1.PodReady, is, "", i),
			cond(corev1.ContainersReady, is, "", i), cond(corev1.PodScheduled, "True", "", 1)},
		ContainerStatuses: []corev1.ContainerStatus{{Name: "app", Image: "img", ImageID: "img", RestartCount: int32(i),
			Ready: isReady,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(i)}}}}}
	if pod.Ended(phase) {
		s.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 0,
			FinishedAt: at(i)}}
	}
	return s
}

func restarts(p *corev1.Pod) int {
	if len(p.Status.ContainerStatuses) == 0 {
		return -1
	}
	return int(p.Status.ContainerStatuses[0].RestartCount)
}

// requests records the node's requests for a pod.
func (n *node) requests(pod string) func() []string {
	var mu sync.Mutex
	var all []string
	n.cluster.Inject(kubeapitest.Fault{Match: func(r *http.Request) bool {
		if at := strings.Index(r.URL.Path, "/pods/"+pod); at >= 0 {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, r.Method+" "+r.URL.Path[at:])
		}
		return false
	}})
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return all
	}
}

func TestLifeOfAPod(t *testing.T) {
	n := newNode(t, "life")
	requests := n.requests("web")
	p := n.pod("web", func(p *corev1.Pod) {
		p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/gate"}}
	})
	n.set(p, status(1, corev1.PodRunning, true), false)
	n.shows(p, "the first status", func(p *corev1.Pod) bool { return restarts(p) == 1 && ready(p.Status) })

	gate := []byte(`{"status":{"conditions":[{"type":"example.com/gate","status":"True"}],"containerStatuses":null}}`)
	if _, err := n.admin.CoreV1().Pods(n.namespace).Patch(t.Context(), "web", types.StrategicMergePatchType, gate,
		metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	n.shows(p, "what is ours again, beside what is not", func(p *corev1.Pod) bool {
		return restarts(p) == 1 && condition(p.Status.Conditions, "example.com/gate") != nil
	})

	if err := n.admin.CoreV1().Pods(n.namespace).Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	p = n.shows(p, "the deletion's mark", func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil })
	n.set(p, status(2, corev1.PodSucceeded, false), true)
	n.until("the pod's end", func() bool { return len(n.dropped) == 1 })
	last := n.shows(p, "the final phase", func(p *corev1.Pod) bool { return pod.Ended(p.Status.Phase) })
	if condition(last.Status.Conditions, "example.com/gate") == nil {
		t.Error("the condition of another writer is lost")
	}
	if _, err := n.admin.CoreV1().Pods(n.namespace).Get(t.Context(), "web",
		metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the pod is still there: %v", err)
	}
	want := []string{"PATCH /pods/web/status", "PATCH /pods/web/status", "PATCH /pods/web/status", "DELETE /pods/web"}
	if diff := cmp.Diff(want, requests()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// The pod has been deleted, or replaced by another of the same name, when its status is sent.
func TestPodWasReplaced(t *testing.T) {
	n := newNode(t, "replaced")
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
	for _, again := range []bool{false, true} {
		n.dropped = nil
		p := n.pod("web", nil)
		if err := n.admin.CoreV1().Pods(n.namespace).Delete(t.Context(), "web", now); err != nil {
			t.Fatal(err)
		}
		if again {
			p2 := n.pod("web", nil)
			defer func() {
				if got, err := n.admin.CoreV1().Pods(n.namespace).Get(t.Context(), "web",
					metav1.GetOptions{}); err != nil || got.UID != p2.UID || restarts(got) != -1 {
					t.Errorf("the new pod has the old one's status: %+v, %v", got, err)
				}
			}()
		}
		n.set(p, status(1, corev1.PodRunning, true), false)
		n.until("the old pod's end", func() bool { return cmp.Equal(n.dropped, []types.UID{p.UID}) })
	}
}

// A conflict may mean that the pod was replaced, or only that it has changed.
func TestDeleteMeetsAConflict(t *testing.T) {
	n := newNode(t, "conflict")
	n.cluster.Inject(kubeapitest.Fault{
		Match: func(r *http.Request) bool {
			return r.Method == http.MethodDelete
		}, Times: 2, Code: http.StatusConflict, Reason: metav1.StatusReasonConflict,
	})
	for _, replaced := range []bool{false, true} {
		n.dropped = nil
		p := n.pod("web", nil)
		if err := n.admin.CoreV1().Pods(n.namespace).Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		marked := n.shows(p, "the deletion's mark", func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil })
		if replaced {
			if err := n.admin.CoreV1().Pods(n.namespace).Delete(t.Context(), "web",
				metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
				t.Fatal(err)
			}
			n.pod("web", nil)
		}
		n.set(marked, status(1, corev1.PodSucceeded, false), true)
		n.until("the pod's end", func() bool { return cmp.Equal(n.dropped, []types.UID{p.UID}) })
		_, err := n.admin.CoreV1().Pods(n.namespace).Get(t.Context(), "web", metav1.GetOptions{})
		if replaced != (err == nil) {
			t.Errorf("replaced %v: %v", replaced, err)
		}
	}
}

func TestMirrorPodIsNotDeleted(t *testing.T) {
	n := newNode(t, "mirror")
	p := n.pod("static", func(p *corev1.Pod) {
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "static-uid"}
	})
	if err := n.admin.CoreV1().Pods(n.namespace).Delete(t.Context(), "static", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	n.writer.Set(Row{UID: "static-uid", Pod: p, Status: status(3, corev1.PodSucceeded, false), Gone: true})
	if err := n.writer.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := n.writer.Stats(); s.Deletes != 0 || s.Patches != 1 {
		t.Errorf("%+v", s)
	}
}

// Responses 409, 429 and 500 delay a status. Its last state is sent in the end.
func TestErrorsAreRetried(t *testing.T) {
	n := newNode(t, "errors")
	p := n.pod("web", nil)
	isPatch := func(r *http.Request) bool { return r.Method == http.MethodPatch }
	n.cluster.Inject(
		kubeapitest.Fault{Match: isPatch, Times: 1, Code: http.StatusConflict, Reason: metav1.StatusReasonConflict},
		kubeapitest.Fault{Match: isPatch, Times: 2, Code: http.StatusTooManyRequests,
			Reason: metav1.StatusReasonTooManyRequests, RetryAfter: 1},
		kubeapitest.Fault{Match: isPatch, Times: 1, Code: http.StatusInternalServerError,
			Reason: metav1.StatusReasonInternalError},
	)
	for i := range 5 {
		n.set(p, status(i, corev1.PodRunning, i%2 == 0), false)
	}
	n.shows(p, "the last state", func(p *corev1.Pod) bool { return restarts(p) == 4 && ready(p.Status) })
	if err := n.writer.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := n.writer.Stats(); s.Failures < 4 || s.Waiting != 0 {
		t.Errorf("%+v", s)
	}
}

// Many pods change while the API server refuses some requests, then dies and comes back. The states of each pod arrive
// in order, and the last one remains.
func TestStatusesStayInOrderThroughFaults(t *testing.T) {
	const many, states = 500, 12
	n := newNode(t, "storm")
	pods := make([]*corev1.Pod, many)
	var making errgroup.Group
	making.SetLimit(16)
	for i := range pods {
		making.Go(func() error {
			pods[i] = n.pod(fmt.Sprint("web-", i), nil)
			return nil
		})
	}
	if err := making.Wait(); err != nil {
		t.Fatal(err)
	}
	isPatch := func(r *http.Request) bool { return r.Method == http.MethodPatch }
	for i := 1; i <= states; i++ {
		phase := corev1.PodRunning
		if i == states {
			phase = corev1.PodSucceeded
		}
		for _, p := range pods {
			n.set(p, status(i, phase, i%2 == 0 && i != states), false)
		}
		switch i {
		case 2:
			n.cluster.Inject(kubeapitest.Fault{Match: isPatch, Times: 50, Code: http.StatusTooManyRequests,
				Reason: metav1.StatusReasonTooManyRequests, RetryAfter: 1},
				kubeapitest.Fault{Match: isPatch, Times: 50, Code: http.StatusConflict,
					Reason: metav1.StatusReasonConflict})
		case 4:
			n.until("some statuses", func() bool { return n.writer.Stats().Patches > many/2 })
			n.cluster.Inject()
		case 6:
			n.cluster.KillAPIServer()
		}
	}
	n.cluster.StartAPIServer()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := n.writer.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	list, err := n.admin.CoreV1().Pods(n.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != many {
		t.Fatalf("%d pods, %v", len(list.Items), err)
	}
	for _, p := range list.Items {
		if restarts(&p) != states || p.Status.Phase != corev1.PodSucceeded || ready(p.Status) {
			t.Errorf("pod %s: state %d, %s", p.Name, restarts(&p), p.Status.Phase)
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, seen := range n.seen {
		for i := 1; i < len(seen); i++ {
			if restarts(seen[i]) < restarts(seen[i-1]) {
				t.Errorf("pod %s: state %d after %d", seen[i].Name, restarts(seen[i]), restarts(seen[i-1]))
			}
		}
	}
	t.Logf("%+v", n.writer.Stats())
}

func TestFlushSaysWhatIsLeft(t *testing.T) {
	n := newNode(t, "flush")
	p := n.pod("web", nil)
	n.cluster.Disconnect()
	defer n.cluster.Connect()
	n.set(p, status(1, corev1.PodFailed, false), false)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	want := regexp.MustCompile(`^flush statuses of pods: 1 of 1 are left: ` +
		`the API server has not accepted them within [0-9.]+m?s$`)
	if err := n.writer.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) || !want.MatchString(err.Error()) {
		t.Errorf("%v, want %s", err, want)
	}
	n.cluster.Connect()
	if err := n.writer.Flush(t.Context()); err != nil {
		t.Error(err)
	}
}
