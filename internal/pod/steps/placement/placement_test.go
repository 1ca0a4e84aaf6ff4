package placement

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/node/resource"
)

// everyPod is a node that has each pod.
type everyPod struct{}

func (everyPod) Pod(uid types.UID) (*corev1.Pod, bool) { return aPod(uid), true }

// node is a machine with 8 CPUs. Containers hold some of them.
type node struct {
	mu      sync.Mutex
	held    map[types.UID]resource.Allocation
	kernel  map[string]string // cpuset.cpus by id
	runtime map[string]string // the same as last reported to the runtime
	order   []string          // moves and starts in their order
	stuck   string            // the id of a container that the kernel does not move
	// during, if set, runs before the runtime makes an update.
	during func(ctx context.Context, id string) error
}

func (n *node) Get(uid types.UID) (resource.Allocation, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	a, ok := n.held[uid]
	return a, ok
}

func (n *node) Shared() cpuset.CPUSet {
	n.mu.Lock()
	defer n.mu.Unlock()
	shared := cpuset.New(0, 1, 2, 3, 4, 5, 6, 7)
	for _, a := range n.held {
		for _, g := range a.Containers {
			shared = shared.Difference(g.CPUs)
		}
	}
	return shared
}

func (n *node) Pin(_ *corev1.Pod, id, cpus string) (bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if id == n.stuck {
		return true, errors.New("device or resource busy")
	}
	if _, ok := n.kernel[id]; !ok {
		return false, nil
	}
	n.kernel[id] = cpus
	n.order = append(n.order, id+" to "+cpus)
	return true, nil
}

func (n *node) Pinned(_ *corev1.Pod, id string) (cpus, mems string, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	cpus, ok = n.kernel[id]
	return cpus, "", ok
}

func (n *node) UpdateContainerResources(ctx context.Context, r *runtimeapi.UpdateContainerResourcesRequest,
	_ ...grpc.CallOption) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	if n.during != nil {
		if err := n.during(ctx, r.ContainerId); err != nil {
			return nil, err
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.runtime[r.ContainerId] = r.Linux.CpusetCpus
	if _, ok := n.kernel[r.ContainerId]; ok { // the runtime writes the requested CPUs
		n.kernel[r.ContainerId] = r.Linux.CpusetCpus
	}
	return &runtimeapi.UpdateContainerResourcesResponse{}, nil
}

func (n *node) give(uid types.UID, name string, cpus ...int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.held[uid] = resource.Allocation{Containers: map[string]resource.Holding{name: {CPUs: cpuset.New(cpus...)}}}
}

func (n *node) placements(observed *store.Table[types.UID, *pod.Observed], changed <-chan struct{}) *Placements {
	return New(Options{
		Ledger: n, Changed: changed, Runtime: n, Cgroups: n, Observed: observed,
		Pods: everyPod{}, Log: slog.New(slog.DiscardHandler),
	})
}

func newNode() *node {
	return &node{held: map[types.UID]resource.Allocation{}, kernel: map[string]string{}, runtime: map[string]string{}}
}

// launch creates and starts a container as package container does.
func (n *node) launch(t *testing.T, s *Placements, p *corev1.Pod, name, id string) {
	t.Helper()
	c, _ := pod.FindContainer(p, name)
	config := &runtimeapi.ContainerConfig{}
	if err := s.PreCreate(t.Context(), p, c, config); err != nil {
		t.Fatal(err)
	}
	if err := s.PreStart(t.Context(), p, c, id); err != nil {
		t.Fatal(err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.kernel[id] = config.GetLinux().GetResources().GetCpusetCpus()
	n.order = append(n.order, id+" starts on "+n.kernel[id])
}

func TestWhoSharesMovesBeforeAPinnedContainerStarts(t *testing.T) {
	n := newNode()
	s := n.placements(store.New[types.UID, *pod.Observed](), nil)
	n.launch(t, s, aPod("one"), "a", "shares")
	n.give("two", "a", 2, 3)
	n.launch(t, s, aPod("two"), "a", "pinned")
	n.launch(t, s, aPod("two"), "b", "beside")
	want := []string{"shares starts on 0-7", "shares to 0-1,4-7", "pinned starts on 2-3", "beside starts on 0-1,4-7"}
	if diff := cmp.Diff(want, n.order); diff != "" {
		t.Error(diff)
	}
}

// The shared CPUs change between the creation and the start of a container.
func TestWhatChangedSinceCreationCounts(t *testing.T) {
	n := newNode()
	s := n.placements(store.New[types.UID, *pod.Observed](), nil)
	p := aPod("one")
	c, _ := pod.FindContainer(p, "a")
	if err := s.PreCreate(t.Context(), p, c, &runtimeapi.ContainerConfig{}); err != nil {
		t.Fatal(err)
	}
	n.give("two", "a", 0)
	if err := s.PreStart(t.Context(), p, c, "late"); err != nil {
		t.Fatal(err)
	}
	if got, want := n.runtime["late"], "1-7"; got != want {
		t.Errorf("the runtime knew %q before the start, want %q", got, want)
	}
}

// A container gets its exclusive CPUs only after the others have left them. Containers that share CPUs start anyway.
func TestOneThatCannotMoveHoldsUpWhoGetsItsCPUs(t *testing.T) {
	n := newNode()
	s := n.placements(store.New[types.UID, *pod.Observed](), nil)
	n.launch(t, s, aPod("one"), "a", "stuck")
	n.stuck = "stuck"
	n.give("two", "a", 2)
	p := aPod("two")
	c, _ := pod.FindContainer(p, "a")
	if err := s.PreCreate(t.Context(), p, c, &runtimeapi.ContainerConfig{}); err != nil {
		t.Fatal(err)
	}
	if err := s.PreStart(t.Context(), p, c, "pinned"); err == nil ||
		!strings.Contains(err.Error(), `move container "a" of pod default/one to CPUs 0-1,3-7`) {
		t.Errorf("the CPUs are in use, got %v", err)
	}
	n.launch(t, s, aPod("three"), "a", "shares")
	n.stuck = ""
	n.launch(t, s, p, "a", "pinned")
	if got, want := n.kernel["pinned"], "2"; got != want {
		t.Errorf("pinned on %q, want %q", got, want)
	}
}

func TestNothingIsBookedWithoutAPolicy(t *testing.T) {
	n := newNode()
	n.held[""] = resource.Allocation{
		Containers: map[string]resource.Holding{"": {CPUs: cpuset.New(0, 1, 2, 3, 4, 5, 6, 7)}}} // no CPU is shared
	s := n.placements(store.New[types.UID, *pod.Observed](), nil)
	n.launch(t, s, aPod("one"), "a", "free")
	if len(s.bookings()) > 0 || n.kernel["free"] != "" {
		t.Errorf("booked %v, CPUs %q; want nothing", s.bookings(), n.kernel["free"])
	}
}

// After a restart, Run moves a container from CPUs that were allotted to another pod, and drops one that has ended.
func TestRunAdoptsMovesAndReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.kernel = map[string]string{"runs": "0-7"}
		n.give("two", "a", 5)
		observed, changed := store.New[types.UID, *pod.Observed](), make(chan struct{}, 1)
		show := func(state pod.ContainerState) {
			observed.Put("one",
				&pod.Observed{UID: "one",
					Containers: []pod.ContainerStatus{{ID: "runs", Name: "a", State: state},
						{ID: "old", Name: "a", State: pod.StateExited}}})
		}
		show(pod.StateRunning)
		s := n.placements(observed, changed)
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.Run(ctx) }()
		check := func(when, cpus string) {
			t.Helper()
			synctest.Wait()
			if diff := cmp.Diff([]string{cpus, cpus}, []string{n.kernel["runs"], n.runtime["runs"]}); diff != "" {
				t.Errorf("%s: kernel and runtime (-want +got):\n%s", when, diff)
			}
		}
		check("at the start", "0-4,6-7")

		n.stuck = "runs"
		n.give("three", "a", 6)
		changed <- struct{}{}
		check("while it cannot be moved", "0-4,6-7")
		n.mu.Lock()
		n.stuck = ""
		n.mu.Unlock()
		time.Sleep(retry)
		check("afterwards", "0-4,7")

		show(pod.StateExited)
		synctest.Wait()
		if diff := cmp.Diff([]string{}, keys(s.bookings())); diff != "" {
			t.Errorf("bookings after its end (-want +got):\n%s", diff)
		}
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// The ledger changes while the runtime applies an earlier report.
func TestTheRuntimeUndoesNothing(t *testing.T) {
	n := newNode()
	s := n.placements(store.New[types.UID, *pod.Observed](), nil)
	n.launch(t, s, aPod("one"), "a", "shares")
	n.give("two", "a", 7)
	n.launch(t, s, aPod("two"), "a", "pinned")

	settled := make(chan error, 1)
	n.during = func(ctx context.Context, _ string) error {
		n.give("three", "a", 6)
		if s.moving.TryLock() { // another call could come in between
			s.moving.Unlock()
			settled <- joined(s.settle(ctx))
		} else {
			go func() { settled <- joined(s.settle(t.Context())) }()
		}
		return nil
	}
	if err := errors.Join(s.report(t.Context()), <-settled); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"shares": "0-5", "pinned": "7"}, n.kernel); diff != "" {
		t.Error(diff)
	}
	n.during = nil
	if err := s.report(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"shares": "0-5"}, n.runtime); diff != "" {
		t.Errorf("reports to the runtime (-want +got):\n%s", diff)
	}
}

// The runtime may refuse to update one container and never answer for another one. Neither delays the updates of the
// other containers for long.
func TestTheRuntimeIsNotWaitedForWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		s := n.placements(store.New[types.UID, *pod.Observed](), nil)
		for _, id := range []string{"refused", "unanswered", "told"} {
			n.launch(t, s, aPod(types.UID(id)), "a", id)
		}
		n.give("two", "a", 7)
		if err := s.settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		n.during = func(ctx context.Context, id string) error {
			switch id {
			case "refused":
				return errors.New("no such file")
			case "unanswered":
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		began := time.Now()
		err := s.report(t.Context())
		if err == nil || !strings.Contains(err.Error(), "no such file") || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want both", err)
		}
		if took := time.Since(began); took != patience {
			t.Errorf("took %v, want %v", took, patience)
		}
		if diff := cmp.Diff(map[string]string{"told": "0-6"}, n.runtime); diff != "" {
			t.Error(diff)
		}
	})
}

func keys(m map[string]booking) []string {
	all := []string{}
	for id := range maps.Keys(m) {
		all = append(all, id)
	}
	return all
}
