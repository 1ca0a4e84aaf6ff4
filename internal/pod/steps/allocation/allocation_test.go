package allocation

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/node"
	"github.com/berth-run/berth/internal/node/machine"
	"github.com/berth-run/berth/internal/node/machine/machinetest"
	"github.com/berth-run/berth/internal/node/resource"
	"github.com/berth-run/berth/internal/node/resource/device"
	"github.com/berth-run/berth/internal/node/resource/memory"
	"github.com/berth-run/berth/internal/node/resource/state"
	"github.com/berth-run/berth/internal/node/resource/topology"
	"github.com/berth-run/berth/internal/pod/worker"
)

var sameSets = cmp.Comparer(func(a, b cpuset.CPUSet) bool { return a.String() == b.String() })

// world is a node and the pods that run on it. The node has 2 sockets of 16 CPUs each. CPU 0 is reserved.
type world struct {
	root    string
	desired *store.Table[types.UID, *pod.Pod]
	runs    map[types.UID]string // CPUs by pod
	working map[types.UID]bool
	near    topology.Options
	events  events
}

// Inventory is empty, as on a node without device plugins.
func (w *world) Inventory() device.Inventory { return nil }

func (w *world) Pinned(p *corev1.Pod, _ string) (cpus, mems string, ok bool) {
	return w.runs[p.UID], "0-1", true
}

func (w *world) Known(uid types.UID) bool {
	_, ok := w.desired.Get(uid)
	return ok
}

func (w *world) Working(uid types.UID) bool { return w.working[uid] }

func newWorld(t *testing.T) *world {
	return &world{root: t.TempDir(), desired: store.New[types.UID, *pod.Pod](), runs: map[types.UID]string{},
		working: map[types.UID]bool{}}
}

func (w *world) start(t *testing.T) *Allocations {
	t.Helper()
	synced := make(chan struct{})
	close(synced)
	observed := store.New[types.UID, *pod.Observed]()
	for uid := range w.runs {
		observed.Put(uid,
			&pod.Observed{UID: uid, Containers: []pod.ContainerStatus{{ID: "1", Name: "app", State: pod.StateRunning}}})
	}
	n := resource.Node{Machine: machinetest.Load(t, "2x8-smt"),
		Policy: resource.Policy{CPUs: true, ReservedCPUs: cpuset.New(0), Topology: w.near}}
	dir, log := filepath.Join(w.root, "resources"), slog.New(slog.DiscardHandler)
	s := New(Options{
		Node: n, Ledger: resource.NewLedger(resource.LedgerOptions{Dir: dir, Node: n, Log: log}),
		Dir: dir, Root: w.root, Log: log,
		Devices: w, Desired: w.desired, Synced: []<-chan struct{}{synced},
		Observed: observed, Cgroups: w, Pods: w, Events: &w.events,
	})
	if err := s.Load(); err != nil {
		t.Log(err)
	}
	return s
}

func (w *world) want(uid types.UID, cpus string) *corev1.Pod {
	list := corev1.ResourceList{"cpu": apiresource.MustParse(cpus), "memory": apiresource.MustParse("64Mi")}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}, Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "init",
			Resources: corev1.ResourceRequirements{Requests: list, Limits: list}}},
		Containers: []corev1.Container{{Name: "app",
			Resources: corev1.ResourceRequirements{Requests: list, Limits: list}}},
	}}
	w.desired.Put(uid, &pod.Pod{Pod: p})
	return p
}

func book(t *testing.T, s *Allocations, p *corev1.Pod, beside ...types.UID) {
	t.Helper()
	if err := s.Book(p, beside); err != nil {
		t.Fatal(err)
	}
}

func app(cpus string) map[string]resource.Holding {
	set, err := cpuset.Parse(cpus)
	if err != nil {
		panic(err)
	}
	return map[string]resource.Holding{"app": {CPUs: set}}
}

func holds(t *testing.T, s *Allocations, want map[types.UID]string) {
	t.Helper()
	held := resource.Held{}
	for uid, cpus := range want {
		held[uid] = resource.Allocation{Containers: app(cpus)}
	}
	got := s.All()
	for _, a := range got {
		delete(a.Containers, "init")
	}
	if diff := cmp.Diff(held, got, sameSets); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestFromAdmissionToTheEnd(t *testing.T) {
	w := newWorld(t)
	s := w.start(t)
	a, b := w.want("a", "2"), w.want("b", "4")
	book(t, s, a)
	book(t, s, b, "a")
	first, _ := s.Get("a")
	if err := s.PreStart(t.Context(), a, pod.Containers(a)[1], "id"); err != nil {
		t.Fatal(err)
	}
	after, _ := s.Get("a")
	if diff := cmp.Diff(first, after, sameSets); diff != "" || after.Containers["init"].CPUs.IsEmpty() {
		t.Errorf("when the app starts (-want +got):\n%s", diff)
	}
	if after.CPUs().Size() != 2 || !after.CPUs().Intersection(s.All()["b"].CPUs()).IsEmpty() {
		t.Errorf("a has %s beside %s", after.CPUs(), s.All()["b"].CPUs())
	}
	if err := s.Step().Teardown(t.Context(), &worker.Run{Pod: &pod.Pod{Pod: a}}); err != nil {
		t.Fatal(err)
	}
	w.desired.Delete("b")
	s.Retain()
	holds(t, s, nil)
}

func TestRestart(t *testing.T) {
	tests := []struct {
		name  string
		files map[string]string
		runs  map[types.UID]string
		want  map[types.UID]string
	}{
		{name: "nothing", want: map[types.UID]string{}},
		{
			name:  "what runs, when the files are damaged",
			files: map[string]string{"resources/a.json": "broken"},
			runs:  map[types.UID]string{"a": "3,19", "b": "4-5,20-21"},
			want:  map[types.UID]string{"a": "3,19", "b": "4-5,20-21"},
		},
		{
			name: "what runs of a pod that ends and nobody describes",
			runs: map[types.UID]string{"ending": "3,19", "shares": "0-31", "b": "4-5,20-21"},
			want: map[types.UID]string{"ending": "3,19", "b": "4-5,20-21"},
		},
		{
			name: "only what can be true", runs: map[types.UID]string{"a": "0,16", "b": "1-7"},
			want: map[types.UID]string{},
		},
		{
			name: "a kubelet's",
			files: map[string]string{
				"cpu_manager_state": `{"policyName":"static","defaultCpuSet":"0","entries":{"a":{"app":"9-10"},` +
					`"gone":{"app":"1"}}}`},
			want: map[types.UID]string{"a": "9-10", "gone": "1"},
		},
		{
			name:  "a kubelet's that is damaged, beside what runs",
			files: map[string]string{"cpu_manager_state": `{"policyName":"static"`},
			runs:  map[types.UID]string{"a": "3,19"},
			want:  map[types.UID]string{"a": "3,19"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.want("a", "2")
			w.want("b", "4")
			for name, text := range tt.files {
				path := filepath.Join(w.root, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if tt.runs != nil {
				w.runs = tt.runs
			}
			s := w.start(t)
			if err := s.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			continued := false
			if err := s.After(func(context.Context) error { continued = true; return nil })(t.Context()); err != nil ||
				!continued {
				t.Errorf("got no error, want one: %v", err)
			}
			holds(t, s, tt.want)
		})
	}
}

// A kubelet finds the allocations in its own files. The next agent reads these files if a kubelet has written them.
func TestThereAndBack(t *testing.T) {
	w := newWorld(t)
	s := w.start(t)
	book(t, s, w.want("a", "2"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Mirror(s)(ctx); err != nil {
		t.Fatal(err)
	}
	first, _ := s.Get("a")
	path := filepath.Join(w.root, state.CPUFile)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	left, err := state.ParseCPUs(text)
	if err != nil || !left["a"].CPUs().Equals(first.CPUs()) || !state.Ours(text) {
		t.Errorf("%s, error %v", text, err)
	}
	holds(t, w.start(t), map[types.UID]string{"a": first.CPUs().String()})
	if err := os.WriteFile(path,
		[]byte(`{"policyName":"static","defaultCpuSet":"0","entries":{"b":{"app":"`+first.CPUs().String()+`"}}}`),
		0o600); err != nil {
		t.Fatal(err)
	}
	holds(t, w.start(t), map[types.UID]string{"b": first.CPUs().String()})
}

type events []string

func (e *events) Event(_ corev1.ObjectReference, _, reason, format string, args ...any) {
	*e = append(*e, reason+": "+fmt.Sprintf(format, args...))
}

// A pod that ran on CPUs that are reserved now gets other CPUs and an event.
func TestWhatCannotBeKept(t *testing.T) {
	w := newWorld(t)
	p := w.want("a", "2")
	if err := resource.NewLedger(resource.LedgerOptions{
		Dir: filepath.Join(w.root, "resources"), Node: resource.Node{}, Log: slog.New(slog.DiscardHandler),
	}).Commit("a", resource.Allocation{Containers: app("0,16")}); err != nil {
		t.Fatal(err)
	}
	s := w.start(t)
	book(t, s, p)
	book(t, s, p)
	if got, _ := s.Get("a"); got.CPUs().Size() != 2 || got.CPUs().Contains(0) {
		t.Errorf("it holds %s", got.CPUs())
	}
	if diff := cmp.Diff(
		events{
			"AllocationChanged: The pod cannot keep all resources that it held exclusively: CPUs 0,16: 0 are reserved"},
		w.events); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// If two pods were found on the same CPUs, one keeps them. The other gets different CPUs when it is admitted, and an
// event.
func TestWhatWasFoundTwice(t *testing.T) {
	w := newWorld(t)
	w.want("a", "2")
	b := w.want("b", "2")
	w.runs = map[types.UID]string{"a": "3,19", "b": "3,19"}
	s := w.start(t)
	s.Restore()
	book(t, s, b)
	if got := s.All(); got["a"].CPUs().String() != "3,19" || got["b"].CPUs().Size() != 2 ||
		got["b"].CPUs().Contains(3) {
		t.Errorf("they hold %v", got)
	}
	if diff := cmp.Diff(
		events{
			"AllocationChanged: The pod cannot keep all resources that it held exclusively: CPUs 3,19: 3,19 " +
				"are held by " +
				"another pod"}, w.events); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A reservation for a pod that waits until others end is not allotted to a pod that is admitted later.
func TestWhatIsKeptForAPodThatWaits(t *testing.T) {
	w := newWorld(t)
	w.near = topology.Options{Policy: topology.SingleNUMANode, Scope: topology.ScopeContainer}
	s := w.start(t)
	for uid, cpus := range map[types.UID]string{"ends": "1-7,16-23", "stays": "8-11,24-27"} {
		if err := s.Commit(uid, resource.Allocation{Containers: app(cpus)}); err != nil {
			t.Fatal(err)
		}
	}
	first, later := w.want("first", "12"), w.want("later", "8")
	s.Reserve(first, []types.UID{"stays"})
	s.Forget("ends")
	book(t, s, later, "stays", "first")
	if got, _ := s.Get("later"); got.CPUs().String() != "12-15,28-31" {
		t.Errorf("the second pod got %s, which is reserved for the first", got.CPUs())
	}
	book(t, s, first, "stays", "later")
	if _, err := s.Allot(w.want("last", "4"), []types.UID{"stays", "later", "first"}); err == nil {
		t.Error("a third pod fits")
	}
	s.Forget("first")
	book(t, s, w.want("last", "4"), "stays", "later", "first")
}

// Allot changes nothing, even before the running pods are read. The CPUs of a running pod are not allotted although the
// pod is not desired.
func TestAskingBooksNothing(t *testing.T) {
	w := newWorld(t)
	a, all := w.want("a", "30"), "1-15,17-31"
	w.runs["ending"] = all
	s := w.start(t)
	if got, err := s.Allot(a, nil); err != nil || got.CPUs().Size() != 30 {
		t.Errorf("allotted %s, error %v", got.CPUs(), err)
	}
	holds(t, s, map[types.UID]string{})
	s.Restore()
	if got, err := s.Allot(a, nil); err == nil {
		t.Errorf("allotted %s", got.CPUs())
	}
	holds(t, s, map[types.UID]string{"ending": all})
}

// The allocations of ended pods do not count for admission; the reservations for their successors do.
func TestWhatCountsBeside(t *testing.T) {
	w := newWorld(t)
	s := w.start(t)
	for _, uid := range []types.UID{"ended", "later", "gone", "beside"} {
		if err := s.Commit(uid, resource.Allocation{Containers: app("1")}); err != nil {
			t.Fatal(err)
		}
		if uid != "gone" {
			w.want(uid, "1")
		}
	}
	w.working["ended"], w.working["beside"] = true, true
	var got []string
	for _, uid := range []types.UID{"beside", "ended", "gone", "later"} {
		if _, counts := s.held("new", []types.UID{"beside"})[uid]; counts {
			got = append(got, string(uid))
		}
	}
	if diff := cmp.Diff([]string{"beside", "later"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestNodeOf(t *testing.T) {
	const gi = int64(1) << 30
	m := machine.Machine{CPUs: []machine.CPU{{ID: 0}, {ID: 1, Core: 1}},
		Nodes: []machine.Node{{ID: 0, CPUs: cpuset.New(0, 1), Memory: 4 * gi}}}
	list := func(memory int64) corev1.ResourceList {
		return corev1.ResourceList{"memory": *apiresource.NewQuantity(memory, apiresource.BinarySI)}
	}
	facts := node.Facts{Capacity: list(4 * gi), Allocatable: list(3 * gi)}
	reserved := corev1.ResourceList{"cpu": apiresource.MustParse("500m")}
	tests := []struct {
		name    string
		pinning config.Pinning
		want    string
		policy  resource.Policy
	}{
		{name: "none"},
		{
			name:    "static",
			pinning: config.Pinning{CPUs: true, Memory: true, ReservedMemory: memory.Reserved{0: {"memory": gi}}},
			policy: resource.Policy{CPUs: true, ReservedCPUs: cpuset.New(0), Memory: true,
				ReservedMemory: memory.Reserved{0: {"memory": gi}}},
		},
		{
			name: "all that is wrong",
			want: `reserve CPUs: reservedSystemCPUs names 7, which are not online: the online CPUs are 0-1
reservedMemory: 2Gi of memory are reserved on all NUMA nodes together, and kubeReserved, systemReserved and ` +
				`evictionHard take 1Gi: make them equal`,
			pinning: config.Pinning{CPUs: true, ReservedCPUs: cpuset.New(7), Memory: true,
				ReservedMemory: memory.Reserved{0: {"memory": 2 * gi}},
				Topology:       topology.Options{Policy: topology.Restricted}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n, err := NodeOf(config.Node{SystemReserved: reserved, Pinning: tt.pinning}, m, facts)
			if tt.want != "" || err != nil {
				if err == nil || err.Error() != tt.want {
					t.Errorf("got  %v\nwant %s", err, tt.want)
				}
				return
			}
			if diff := cmp.Diff(tt.policy, n.Policy, sameSets); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A machine that cannot be read counts as one NUMA node, but it is an error if CPUs or memory must be pinned.
func TestReadNode(t *testing.T) {
	n, err := ReadNode(fstest.MapFS{}, config.Node{}, node.Facts{}, slog.New(slog.DiscardHandler))
	if err != nil || len(n.Machine.Nodes) != 1 {
		t.Errorf("got %v, error %v", n.Machine, err)
	}
	if _, err := ReadNode(fstest.MapFS{}, config.Node{Pinning: config.Pinning{CPUs: true}}, node.Facts{},
		slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a machine without known CPUs pins CPUs")
	}
}
