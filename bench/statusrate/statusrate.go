package statusrate

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/berth-run/berth/bench/controlplane"
	"github.com/berth-run/berth/internal/cluster/kubeapi/kubeapitest"
	"github.com/berth-run/berth/internal/cluster/report"
)

// Pods is the number of pods of the measurement: the kubelet's default limit for a node.
const Pods = 110

const (
	image    = "example.com/workload:1"
	patience = 2 * time.Minute
)

// Rate is one way to write statuses.
type Rate struct {
	InFlight int           // pods written at once; 0: one after the other, and each is read first
	Took     time.Duration // the time for all changes
	Requests int64
	CPU      time.Duration   // of this process: the writer, its client and the watch
	Seen     []time.Duration // from the change to its event in a watch, all pods changing at once
}

// Measure starts a control plane on the same CPUs. For each number of pods in flight it changes all pods once in each
// round.
func Measure(ctx context.Context, rounds int, inFlight ...int) ([]Rate, error) {
	var rates []Rate
	err := controlplane.Use(kubeapitest.Options{}, func(c *kubeapitest.Cluster) error {
		n, err := newNode(ctx, c)
		if err != nil {
			return err
		}
		for _, f := range inFlight {
			rate, err := n.measure(ctx, f, rounds)
			if err != nil {
				return err
			}
			rates = append(rates, rate)
		}
		return nil
	})
	return rates, err
}

// node is a node whose pods run nowhere. Their statuses are invented.
type node struct {
	config   *rest.Config
	client   kubernetes.Interface
	pods     []*corev1.Pod
	requests atomic.Int64
	state    int32

	mu     sync.Mutex
	newest map[types.UID]*corev1.Pod
	onPod  func(*corev1.Pod) // called with each object from the watch
}

func newNode(ctx context.Context, cluster *kubeapitest.Cluster) (*node, error) {
	const name = "bench"
	n := &node{config: cluster.NodeConfig(name), newest: map[types.UID]*corev1.Pod{}}
	n.config.ContentType = "application/vnd.kubernetes.protobuf"
	n.config.Wrap(func(next http.RoundTripper) http.RoundTripper { return counter{next, &n.requests} })
	var err error
	if n.client, err = kubernetes.NewForConfig(n.config); err != nil {
		return nil, err
	}
	in, admin := cluster.Namespace(), cluster.Client()
	for i := range Pods {
		p, err := admin.CoreV1().Pods(in).Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("web-", i), Labels: map[string]string{"app": "web"}},
			Spec: corev1.PodSpec{NodeName: name,
				Containers: []corev1.Container{{Name: "app", Image: image}, {Name: "side", Image: image}}},
		}, metav1.CreateOptions{})
		if err != nil {
			return nil, err
		}
		n.pods = append(n.pods, p)
	}
	return n, nil
}

// measure changes all pods at once, round by round.
func (n *node) measure(ctx context.Context, inFlight, rounds int) (Rate, error) {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer func() { cancel(); all.Wait() }()
	w := report.New(report.Options{Client: n.client, InFlight: max(inFlight, 1), Log: slog.New(slog.DiscardHandler)})
	all.Go(func() { _ = w.Run(ctx) }) // with the error of ctx
	lw := cache.NewListWatchFromClient(n.client.CoreV1().RESTClient(), "pods", "",
		fields.OneTermEqualSelector("spec.nodeName", "bench"))
	_, watch := cache.NewInformerWithOptions(cache.InformerOptions{ListerWatcher: lw, ObjectType: &corev1.Pod{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: n.observe, UpdateFunc: func(_, o any) { n.observe(o) },
		}})
	all.Go(func() { watch.Run(ctx.Done()) })
	if !cache.WaitForCacheSync(ctx.Done(), watch.HasSynced) {
		return Rate{}, ctx.Err()
	}
	round := func() ([]time.Duration, error) { return n.round(ctx, w, inFlight > 0) }
	if _, err := round(); err != nil { // a warm-up for connections and caches
		return Rate{}, err
	}
	var seen []time.Duration
	requests, cpu, begin := n.requests.Load(), ownCPU(), time.Now()
	for range rounds {
		times, err := round()
		if err != nil {
			return Rate{}, err
		}
		seen = append(seen, times...)
	}
	return Rate{InFlight: inFlight, Took: time.Since(begin), Requests: n.requests.Load() - requests,
		CPU: ownCPU() - cpu, Seen: seen}, nil
}

// round changes all pods and waits until a watch has shown each change.
func (n *node) round(ctx context.Context, w *report.Writer, parallel bool) ([]time.Duration, error) {
	n.state++
	state, begin := n.state, time.Now()
	var mu sync.Mutex
	seen := map[types.UID]time.Duration{}
	done := make(chan struct{})
	n.mu.Lock()
	n.onPod = func(p *corev1.Pod) {
		mu.Lock()
		defer mu.Unlock()
		if s := p.Status.ContainerStatuses; seen[p.UID] == 0 && len(s) > 0 && s[0].RestartCount == state {
			if seen[p.UID] = time.Since(begin); len(seen) == len(n.pods) {
				close(done)
			}
		}
		if parallel {
			w.Set(report.Row{UID: p.UID, Pod: p, Status: madeUp(state)})
		}
	}
	for _, p := range n.newest {
		if parallel {
			w.Set(report.Row{UID: p.UID, Pod: p, Status: madeUp(state)})
		}
	}
	n.mu.Unlock()
	if !parallel {
		if err := n.oneByOne(ctx, state); err != nil {
			return nil, err
		}
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(patience):
		return nil, fmt.Errorf("wait for status %d of all pods: not seen after %v; writer: %+v", state, patience,
			w.Stats())
	case <-done:
	}
	var times []time.Duration
	for _, d := range seen {
		times = append(times, d)
	}
	return times, nil
}

// oneByOne reads each pod and writes its status, one pod after the other.
func (n *node) oneByOne(ctx context.Context, state int32) error {
	for _, p := range n.pods {
		now, err := n.client.CoreV1().Pods(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		now.Status = madeUp(state)
		if _, err := n.client.CoreV1().Pods(p.Namespace).UpdateStatus(ctx, now, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// observe stores an object from the watch and calls onPod.
func (n *node) observe(o any) {
	p := o.(*corev1.Pod)
	n.mu.Lock()
	n.newest[p.UID] = p
	onPod := n.onPod
	n.mu.Unlock()
	if onPod != nil {
		onPod(p)
	}
}

// madeUp is the made-up status number i of a pod. The pod is ready if i is odd.
func madeUp(i int32) corev1.PodStatus {
	since := metav1.NewTime(time.Unix(1_800_000_000+int64(i), 0))
	is := []corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionTrue}[i%2]
	s := corev1.PodStatus{Phase: corev1.PodRunning, HostIP: "192.0.2.1", HostIPs: []corev1.HostIP{{IP: "192.0.2.1"}},
		PodIP: "10.0.0.1", PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}}}
	for _, t := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized,
		corev1.PodScheduled} {
		s.Conditions = append(s.Conditions,
			corev1.PodCondition{Type: t, Status: corev1.ConditionTrue,
				LastTransitionTime: metav1.NewTime(time.Unix(1_800_000_000, 0))})
	}
	for _, t := range []corev1.PodConditionType{corev1.PodReady, corev1.ContainersReady} {
		s.Conditions = append(s.Conditions, corev1.PodCondition{Type: t, Status: is, LastTransitionTime: since})
	}
	for _, name := range []string{"app", "side"} {
		s.ContainerStatuses = append(s.ContainerStatuses,
			corev1.ContainerStatus{Name: name, Image: image, ImageID: image, ContainerID: "containerd://" + name,
				RestartCount: i, Ready: i%2 == 1, Started: new(true),
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: since}}})
	}
	return s
}

// counter counts requests.
type counter struct {
	http.RoundTripper
	n *atomic.Int64
}

func (c counter) RoundTrip(r *http.Request) (*http.Response, error) {
	c.n.Add(1)
	return c.RoundTripper.RoundTrip(r)
}

// ownCPU is the CPU time of this process.
func ownCPU() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
