package dra

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/cluster/kubeapi/kubeapitest"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/node/plugin"
	"github.com/berth-run/berth/internal/pod/worker"
	"github.com/berth-run/berth/test/dradriver"
)

// patience limits waits in tests. Without a failure none takes that long.
const patience = time.Minute

var shared = kubeapitest.NewShared(kubeapitest.Options{})

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }

// node is a node with its Claims in a cluster without a scheduler: the test allocates claims.
type node struct {
	*Claims
	t         *testing.T
	cluster   *kubeapitest.Cluster
	admin     kubernetes.Interface
	namespace string
	dir, name string
	changed   chan struct{} // buffer of 1
	ahead     atomic.Int64  // how far the agent's clock is ahead

	mu     sync.Mutex
	events []string // events
}

// Event implements event.Sink.
func (n *node) Event(ref corev1.ObjectReference, _, reason, format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.events = append(n.events, ref.Name+" "+reason+": "+fmt.Sprintf(format, args...))
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func start(t *testing.T) *node {
	t.Helper()
	c := shared.Cluster(t)
	dir, err := os.MkdirTemp("", "d") // short, because socket paths are limited
	check(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	n := &node{t: t, cluster: c, admin: c.Client(), namespace: c.Namespace(), dir: dir, name: strings.ToLower(t.Name()),
		changed: make(chan struct{}, 1)}
	_, err = n.admin.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name}},
		metav1.CreateOptions{})
	check(t, err)
	n.Claims = n.agent()
	w := plugin.New(plugin.Options{Dir: filepath.Join(dir, "plugins_registry"),
		Handlers: map[string]plugin.Handler{plugin.TypeDRA: n.Drivers()}, Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = w.Run(ctx) }) // until cancel
	running.Go(func() { _ = n.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return n
}

// Mark implements marker.
func (n *node) Mark(types.UID) {
	select {
	case n.changed <- struct{}{}:
	default:
	}
}

// agent starts a new agent's Claims with the node's credentials and state.
func (n *node) agent() *Claims {
	n.t.Helper()
	client, err := kubernetes.NewForConfig(n.cluster.NodeConfig(n.name))
	check(n.t, err)
	c, err := New(Options{
		Client: client, Events: n, Node: n.name, Dir: n.dir, Boot: "boot", Log: slog.New(slog.DiscardHandler),
		Now:      func() time.Time { return time.Now().Add(time.Duration(n.ahead.Load())) },
		Statuses: n,
	})
	check(n.t, err)
	check(n.t, c.Load())
	return c
}

func (n *node) driver(o dradriver.Options) *dradriver.Driver {
	n.t.Helper()
	o.Name, o.Root, o.Node, o.Client = n.name+".example.com", n.dir, n.name, n.admin
	d, err := dradriver.Start(n.t.Context(), o)
	check(n.t, err)
	n.t.Cleanup(d.Stop)
	return d
}

// claim creates a claim that is not allocated.
func (n *node) claim(name string) *resourceapi.ResourceClaim {
	n.t.Helper()
	c, err := n.admin.ResourceV1().ResourceClaims(n.namespace).Create(n.t.Context(), &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{
			{Name: "big", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "any"}},
			{Name: "small", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "any"}},
		}}},
	}, metav1.CreateOptions{})
	check(n.t, err)
	return c
}

// allocate plays the scheduler: it allocates a claim and reserves it for pods.
func (n *node) allocate(name string, pods ...*corev1.Pod) {
	n.t.Helper()
	claims := n.admin.ResourceV1().ResourceClaims(n.namespace)
	c, err := claims.Get(n.t.Context(), name, metav1.GetOptions{})
	check(n.t, err)
	c.Status.Allocation = &resourceapi.AllocationResult{
		Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{
			{Request: "big", Driver: n.name + ".example.com", Pool: n.name, Device: "x"},
			{Request: "small", Driver: n.name + ".example.com", Pool: n.name, Device: "y"},
		}}}
	c.Status.ReservedFor = nil
	for _, p := range pods {
		c.Status.ReservedFor = append(c.Status.ReservedFor,
			resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: p.Name, UID: p.UID})
	}
	_, err = claims.UpdateStatus(n.t.Context(), c, metav1.UpdateOptions{})
	check(n.t, err)
}

// pod creates a pod on the node whose container uses one request of a claim.
func (n *node) pod(name, claim string) *corev1.Pod {
	n.t.Helper()
	p, err := n.admin.CoreV1().Pods(n.namespace).Create(n.t.Context(),
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
			NodeName: n.name,
			Containers: []corev1.Container{{Name: "app", Image: "example.com/workload:1",
				Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "dev", Request: "big"}}}}},
			ResourceClaims: []corev1.PodResourceClaim{{Name: "dev", ResourceClaimName: &claim}},
		}}, metav1.CreateOptions{})
	check(n.t, err)
	return p
}

func run(p *corev1.Pod) *worker.Run {
	return &worker.Run{Pod: &pod.Pod{Pod: p, Source: pod.SourceAPI}, Observed: &pod.Observed{}}
}

// setup runs the step and returns a channel for its result.
func (n *node) setup(p *corev1.Pod) <-chan error {
	ended := make(chan error, 1)
	ctx, cancel := context.WithTimeout(n.t.Context(), patience)
	go func() { defer cancel(); ended <- n.Step().Setup(ctx, run(p)) }()
	return ended
}

func (n *node) until(what string, is func() bool) {
	n.t.Helper()
	late := time.After(patience)
	for !is() {
		select {
		case <-n.changed:
		case <-time.After(50 * time.Millisecond): // for changes without a notification
		case <-late:
			n.t.Fatalf("not in time: %s", what)
		}
	}
}

func (n *node) waits(p *corev1.Pod, words string) {
	n.t.Helper()
	n.until("waits for "+words, func() bool {
		m, _ := n.Waiting(p.UID)
		return strings.Contains(m, words)
	})
}

func cdi(t *testing.T, c *Claims, p *corev1.Pod) (names []string) {
	t.Helper()
	config := &runtimeapi.ContainerConfig{}
	check(t, c.PreCreate(t.Context(), p, pod.Containers(p)[0], config))
	for _, d := range config.CDIDevices {
		names = append(names, d.Name)
	}
	return names
}

// Two pods share a claim. Each waits for the claim and its driver, and the teardown of the last pod unprepares the
// claim. Another agent can use the prepared claim without the API server.
func TestLife(t *testing.T) {
	n := start(t)
	claim := n.claim("c")
	one, two := n.pod("one", claim.Name), n.pod("two", claim.Name)
	first := n.setup(one)
	n.waits(one, "ResourceClaim c to be allocated")
	n.allocate(claim.Name)
	n.waits(one, "ResourceClaim c to be reserved")
	n.allocate(claim.Name, one, two)
	n.waits(one, "DRA driver testlife.example.com to register")
	d := n.driver(dradriver.Options{})
	check(t, <-first)
	check(t, <-n.setup(two))
	if got := cdi(t, n.Claims, two); !slices.Equal(got, []string{d.CDI("c", "x")}) {
		t.Errorf("CDI names %v", got)
	}
	n.cluster.Disconnect()
	next := n.agent()
	check(t, next.Step().Setup(t.Context(), run(one)))
	if got := cdi(t, next, one); !slices.Equal(got, []string{d.CDI("c", "x")}) {
		t.Errorf("CDI names under the next agent %v", got)
	}
	n.cluster.Connect()
	check(t, n.Step().Teardown(t.Context(), run(one)))
	if d.Prepared() != 1 || !slices.Equal(n.Users(), []types.UID{two.UID}) {
		t.Errorf("after the first pod: %d prepared, users %v", d.Prepared(), n.Users())
	}
	check(t, n.Step().Teardown(t.Context(), run(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: two.UID}})))
	name := n.namespace + "/c"
	if diff := cmp.Diff([]string{"prepare " + name, "unprepare " + name}, d.Calls()); diff != "" || len(n.Users()) > 0 {
		t.Errorf("users %v, calls (-want +got):\n%s", n.Users(), diff)
	}
}

// After a reboot the claims of the pods are prepared again, once. While the API server is away from the start, the
// stored claims are used.
func TestReboot(t *testing.T) {
	n := start(t)
	d := n.driver(dradriver.Options{})
	one, two := n.pod("one", n.claim("c").Name), n.pod("two", "c")
	n.allocate("c", one, two)
	check(t, <-n.setup(one))
	check(t, <-n.setup(two))
	n.opts.Boot = "next"
	n.cluster.Disconnect()
	waits := n.setup(one)
	n.waits(one, "the API server to return ResourceClaim c")
	n.cluster.Connect()
	check(t, <-waits)
	n.opts.Boot, n.opts.StandsIn = "after next", &atomic.Bool{}
	n.opts.StandsIn.Store(true)
	n.cluster.Disconnect()
	defer n.cluster.Connect()
	if err := n.PreCreate(t.Context(), one, pod.Containers(one)[0],
		&runtimeapi.ContainerConfig{}); reason.Of(err) != reason.CreateContainerConfigError {
		t.Errorf("create a container whose claim is not prepared: %v", err)
	}
	check(t, <-n.setup(one))
	check(t, <-n.setup(two))
	if got := cdi(t, n.Claims, two); !slices.Equal(got, []string{d.CDI("c", "x")}) {
		t.Errorf("CDI names %v", got)
	}
	call := "prepare " + n.namespace + "/c"
	if diff := cmp.Diff([]string{call, call, call}, d.Calls()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	for _, p := range []*corev1.Pod{one, two} {
		check(t, n.Step().Teardown(t.Context(), run(p)))
	}
}

// A driver with the older API version refuses a claim at first and prepares it later.
func TestRefusal(t *testing.T) {
	n := start(t)
	d := n.driver(dradriver.Options{V1beta1: true})
	p := n.pod("p", n.claim("c").Name)
	n.allocate("c", p)
	d.Refuse("too hot")
	err := <-n.setup(p)
	if reason.Of(err) != failedPrepare ||
		!strings.Contains(err.Error(), "NodePrepareResources failed for ResourceClaim c: ") ||
		!strings.Contains(err.Error(), "too hot") {
		t.Errorf("prepare: %v", err)
	}
	if err := n.Step().Teardown(t.Context(), run(p)); err == nil || len(n.Users()) != 1 {
		t.Errorf("unprepare: %v, users %v", err, n.Users())
	}
	n.mu.Lock()
	for i, reason := range []string{failedPrepare, failedUnprepare} {
		if len(n.events) != 2 || !strings.HasPrefix(n.events[i], "p "+reason+": ") ||
			!strings.Contains(n.events[i], "too hot") {
			t.Errorf("events %q", n.events)
		}
	}
	n.mu.Unlock()
	d.Refuse("")
	check(t, <-n.setup(p))
	if got := cdi(t, n.Claims, p); len(got) != 1 {
		t.Errorf("CDI names %v", got)
	}
	check(t, n.Step().Teardown(t.Context(), run(p)))
}

// While a driver does not answer, the pod's status says so. The next agent makes the same call again.
func TestHangingDriver(t *testing.T) {
	n := start(t)
	d := n.driver(dradriver.Options{})
	p := n.pod("p", n.claim("c").Name)
	n.allocate("c", p)
	d.Hang("prepare")
	ctx, kill := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.Step().Setup(ctx, run(p)) }()
	n.waits(p, "DRA driver testhangingdriver.example.com to answer NodePrepareResources for ResourceClaim c")
	kill()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("setup: %v", err)
	}
	if m, waits := n.Waiting(p.UID); waits {
		t.Errorf("the status still says: %s", m)
	}
	d.Hang("")
	check(t, n.Load()) // as the next agent does
	check(t, <-n.setup(p))
	if got := cdi(t, n.Claims, p); len(got) != 1 {
		t.Errorf("CDI names %v", got)
	}
	check(t, n.Step().Teardown(t.Context(), run(p)))
}

func TestHealth(t *testing.T) {
	n := start(t)
	d := n.driver(dradriver.Options{})
	p := n.pod("p", n.claim("c").Name)
	n.allocate("c", p)
	check(t, <-n.setup(p))
	d.SetHealth("x", kubeletplugin.HealthStatusUnhealthy)
	want := []corev1.ResourceStatus{{Name: "claim:dev/big",
		Resources: []corev1.ResourceHealth{{ResourceID: corev1.ResourceID(d.CDI("c", "x")),
			Health: corev1.ResourceHealthStatusUnhealthy}}}}
	n.until("unhealthy", func() bool { return cmp.Equal(want, n.Status(p, "app")) })
	n.ahead.Store(int64(healthTimeout))
	want[0].Resources[0].Health = corev1.ResourceHealthStatusUnknown
	if diff := cmp.Diff(want, n.Status(p, "app")); diff != "" {
		t.Errorf("without a report since (-want +got):\n%s", diff)
	}
	check(t, n.Step().Teardown(t.Context(), run(p)))
}

// The ResourceSlices of a driver that is gone are deleted, with a node's rights.
func TestSlices(t *testing.T) {
	n := start(t)
	count := func() int {
		list, err := n.admin.ResourceV1().ResourceSlices().List(t.Context(),
			metav1.ListOptions{FieldSelector: "spec.nodeName=" + n.name})
		check(t, err)
		return len(list.Items)
	}
	d := n.driver(dradriver.Options{Devices: []string{"x", "y"}})
	n.until("published", func() bool { return count() == 1 && n.drivers.of(n.name+".example.com") != nil })
	d.Stop()
	n.until("gone", func() bool { return n.drivers.of(n.name+".example.com") == nil })
	if count() != 1 {
		t.Error("the slices were removed at once")
	}
	n.ahead.Store(int64(Grace))
	check(t, n.drivers.add(plugin.Plugin{Name: "other", Endpoint: "/none",
		Versions: []string{"v1.DRAPlugin"}})) // makes the sweep run again
	n.until("removed", func() bool { return count() == 0 })
}
