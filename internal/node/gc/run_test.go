package gc

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
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/eventually"
	"github.com/berth-run/berth/internal/base/roottest"
	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/steps/poddir"
	"github.com/berth-run/berth/internal/record/event"
)

// node is a runtime. It lists the containers in the observed table.
type node struct {
	t         *testing.T
	root      string // the log directory
	links     string
	table     *store.Table[types.UID, *pod.Observed]
	mu        sync.Mutex
	known     map[types.UID]bool
	fail      int // number of removals that fail
	removed   []string
	events    []string
	synced    chan struct{}
	collector *Collector
}

func newNode(t *testing.T) *node {
	dir := t.TempDir()
	n := &node{t: t, root: filepath.Join(dir, "pods"), links: filepath.Join(dir, "containers"),
		table: store.New[types.UID, *pod.Observed](),
		known: map[types.UID]bool{}, synced: make(chan struct{})}
	n.collector = New(Options{
		Runtime: n, Observer: n, Observed: n.table, Synced: []<-chan struct{}{n.synced}, Pods: n,
		Logs: poddir.New(poddir.Config{Logs: n.root}), LogsDir: n.root, LinkDir: n.links,
		Policy: Policy{PerContainer: 1, Total: -1}, Events: n, Node: event.NodeRef("n1"),
		Log: slog.New(slog.DiscardHandler),
	})
	return n
}

func (n *node) Event(ref corev1.ObjectReference, kind, why, format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.events = append(n.events, fmt.Sprint(ref.Kind, "/", ref.Name, " ", kind, " ", why, ": ",
		fmt.Sprintf(format, args...)))
}

func (n *node) Known(uid types.UID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.known[uid]
}

func (n *node) remove(id string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fail > 0 {
		n.fail--
		return status.Error(codes.Unavailable, "not now")
	}
	n.removed = append(n.removed, id)
	return nil
}

func (n *node) RemoveContainer(_ context.Context, r *runtimeapi.RemoveContainerRequest,
	_ ...grpc.CallOption) (*runtimeapi.RemoveContainerResponse, error) {
	return nil, n.remove(r.ContainerId)
}

func (n *node) RemovePodSandbox(_ context.Context, r *runtimeapi.RemovePodSandboxRequest,
	_ ...grpc.CallOption) (*runtimeapi.RemovePodSandboxResponse, error) {
	return nil, n.remove(r.PodSandboxId)
}

// Refresh deletes what was removed from the table.
func (n *node) Refresh(_ context.Context, uid types.UID) error {
	n.mu.Lock()
	gone := slices.Clone(n.removed)
	n.mu.Unlock()
	o, ok := n.table.Get(uid)
	if !ok {
		return nil
	}
	now := *o
	now.Containers = slices.DeleteFunc(slices.Clone(o.Containers), func(c pod.ContainerStatus) bool {
		return slices.Contains(gone, c.ID)
	})
	now.Sandboxes = slices.DeleteFunc(slices.Clone(o.Sandboxes), func(s pod.SandboxStatus) bool {
		return slices.Contains(gone, s.ID)
	})
	n.table.Put(uid, &now)
	return nil
}

func (n *node) run() {
	ctx, cancel := context.WithCancel(n.t.Context())
	done := make(chan error)
	go func() { done <- n.collector.Run(ctx) }()
	close(n.synced)
	n.t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			n.t.Errorf("Run returned %v", err)
		}
	})
}

func (n *node) file(parts ...string) string {
	path := filepath.Join(append([]string{n.root}, parts...)...)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("x"), 0o644)); err != nil {
		n.t.Fatal(err)
	}
	return path
}

func (n *node) link(name, target string) string {
	path := filepath.Join(n.links, name)
	if err := errors.Join(os.MkdirAll(n.links, 0o755), os.Symlink(target, path)); err != nil {
		n.t.Fatal(err)
	}
	return path
}

func there(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func crashed(instances ...int) *pod.Observed {
	o := &pod.Observed{UID: "u", Namespace: "default", Name: "web",
		Sandboxes: []pod.SandboxStatus{{ID: "s", Ready: true}}}
	for _, i := range instances {
		id := string(rune('a' + i))
		o.Containers = append(o.Containers,
			pod.ContainerStatus{ID: id, SandboxID: "s", Name: "app", State: pod.StateExited, RestartCount: i})
	}
	return o
}

// Garbage of a live pod is removed when it appears, also after a failure.
func TestGarbageOfLivePodIsRemoved(t *testing.T) {
	n := newNode(t)
	n.known["u"], n.fail = true, 1
	old := n.file("default_web_u", "app", "0.log.20260301-120000.gz")
	kept := n.file("default_web_u", "app", "1.log")
	link := n.link("web_default_app-a.log", filepath.Join(n.root, "default_web_u", "app", "1.log"))
	n.run()
	n.table.Put("u", crashed(2, 1, 0))
	eventually.True(n.t, "older instances are removed", func() bool {
		o, _ := n.table.Get("u")
		return len(o.Containers) == 1 && o.Containers[0].RestartCount == 2
	})
	eventually.True(n.t, "the log of the first is removed", func() bool { return !there(old) })
	eventually.True(n.t, "its link is removed", func() bool { return !there(link) })
	if !there(kept) {
		t.Error("the log before the newest was removed")
	}
	const why = "Node/n1 Normal ContainersRemoved: removed earlier instances of container app of pod default/web, " +
		"because the limit of dead instances for each container is 1"
	eventually.True(n.t, "an event says what was removed", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return len(n.events) > 1 && n.events[1] == why
	})
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.events) != 2 || !strings.HasPrefix(n.events[0], "Node/n1 Warning ContainerGCFailed: remove container ") {
		t.Errorf("the failure is an event of the node, got %q", n.events)
	}
}

// Nobody answers a call about the logs of one pod. The garbage of another one is removed all the same.
func TestLogsThatDoNotAnswerDelayNoOther(t *testing.T) {
	roottest.Need(t, "mounting")
	n := newNode(t)
	n.known["u"] = true
	stuck := n.file("default_stuck_x", "app", "0.log")
	n.known["x"] = true
	n.link("stuck.log", stuck)
	release, err := roottest.Hang(filepath.Dir(stuck))
	if err != nil {
		t.Fatal(err)
	}
	n.run()
	t.Cleanup(func() { // before the end of run, which waits for the sweep
		if err := release(); err != nil {
			t.Error(err)
		}
	})
	n.table.Put("u", crashed(1, 0))
	eventually.True(n.t, "the older instance is removed", func() bool {
		o, _ := n.table.Get("u")
		return len(o.Containers) == 1
	})
}

// Everything that an ended pod left in the runtime is removed.
func TestLeftoversOfEndedPodAreRemoved(t *testing.T) {
	n := newNode(t)
	n.known["u"] = true
	n.run()
	o := crashed(0)
	o.Sandboxes = nil // another process removed it
	n.table.Put("u", o)
	n.mu.Lock()
	delete(n.known, "u")
	n.mu.Unlock()
	n.collector.Forget("u")
	eventually.True(n.t, "nothing is left", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return slices.Equal(n.removed, []string{"a"}) && len(n.events) == 0
	})
}

// At the start the collector removes logs of unknown pods, except those that a process writes to, and links without a
// target.
func TestSweepAtStart(t *testing.T) {
	n := newNode(t)
	n.known["u"] = true
	live := n.file("default_web_u", "app", "0.log")
	ghost := n.file("default_ghost_g", "app", "0.log")
	foreign := n.file("default_other_f", "app", "0.log")
	f, err := os.OpenFile(foreign, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	seen := n.file("default_seen_s", "app", "0.log")
	n.table.Put("s", &pod.Observed{UID: "s"})
	rotating := n.file("default_web_u", "two", "0.log.20260301-120000")
	links := map[string]bool{
		n.link("live.log", live):   true,
		n.link("ghost.log", ghost): false,
		n.link("old.log", filepath.Join(n.root, "default_web_u", "app", "7.log")):      false,
		n.link("rotating.log", filepath.Join(n.root, "default_web_u", "two", "0.log")): true,
		n.link("elsewhere.log", "/nonexistent/0.log"):                                  true,
	}
	if err := n.collector.sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{live: true, filepath.Dir(filepath.Dir(ghost)): false, foreign: true,
		seen: true, rotating: true} {
		if there(path) != want {
			t.Errorf("%s exists: %v, want %v", path, !want, want)
		}
	}
	for path, want := range links {
		if there(path) != want {
			t.Errorf("link %s exists: %v, want %v", path, !want, want)
		}
	}
}

// A short disk takes every dead container but the newest instance of each container that may start again. Failed
// removals are not counted.
func TestRemoveDead(t *testing.T) {
	n := newNode(t)
	exited := func(id, name string, restarts int) pod.ContainerStatus {
		return pod.ContainerStatus{ID: id, Name: name, State: pod.StateExited, RestartCount: restarts, SandboxID: "s"}
	}
	for _, uid := range []types.UID{"live", "ended"} {
		n.table.Put(uid, &pod.Observed{UID: uid, Containers: []pod.ContainerStatus{
			exited(string(uid)+"-new", "app", 1), exited(string(uid)+"-old", "app", 0),
		}, Sandboxes: []pod.SandboxStatus{{ID: "s", Ready: true}}})
	}
	removed, err := n.collector.RemoveDead(t.Context(), map[types.UID]bool{"ended": true})
	slices.Sort(removed)
	if err != nil || !slices.Equal(removed, []string{"ended-new", "ended-old", "live-old"}) {
		t.Errorf("removed %v, error %v", removed, err)
	}
	n.fail = 1
	removed, err = n.collector.RemoveDead(t.Context(), map[types.UID]bool{"live": true})
	if err == nil || len(removed) > 0 {
		t.Errorf("removed %v, error %v", removed, err)
	}
}
