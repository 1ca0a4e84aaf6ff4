package shutdown

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/looptest"
	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/pod"
)

// members are pods that the test ends.
type members struct {
	mu      sync.Mutex
	pods    []*corev1.Pod
	stopped chan string // name and grace period
	ended   map[types.UID]chan struct{}
}

func newMembers(pods ...*corev1.Pod) *members {
	m := &members{pods: pods, stopped: make(chan string, len(pods)), ended: map[types.UID]chan struct{}{}}
	for _, p := range pods {
		m.ended[p.UID] = make(chan struct{})
	}
	return m
}

func (m *members) Active() []*corev1.Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.pods)
}

// comes adds a running pod.
func (m *members) comes(p *corev1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pods = append(m.pods, p)
}

func (m *members) Stop(uid types.UID, s pod.Stop) {
	if s.Reason != "Terminated" || s.Message != "Pod was terminated in response to imminent node shutdown." ||
		s.At.IsZero() {
		m.stopped <- "a wrong stop"
		return
	}
	m.stopped <- string(uid) + " " + s.Grace.String()
}

func (m *members) Ended(ctx context.Context, uid types.UID) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-m.ended[uid]:
		return nil
	}
}

// diary records everything that users and the node see, in order.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) add(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, line)
}

func (d *diary) text() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lines
}

func (d *diary) Event(ref corev1.ObjectReference, eventType, reason, format string, _ ...any) {
	d.add(ref.Name + " " + eventType + " " + reason + " " + format)
}

func (d *diary) Flush(context.Context) error {
	d.add("flush")
	return nil
}

// node is a running manager.
type node struct {
	*Manager
	diary *diary
	log   *bytes.Buffer // valid after stop
	stop  func()
}

// SetProblem implements condition.
func (d *diary) SetProblem(problem string) { d.add("problem: " + problem) }

func run(t *testing.T, b *bus, l *login, groups []Group, pods *members, settled ...<-chan struct{}) node {
	t.Helper()
	settled = append(settled, nil)
	n := node{diary: &diary{}, log: &bytes.Buffer{}}
	n.Manager = New(Options{
		Groups: groups, Pods: pods, Settled: settled[0], Statuses: n.diary, Condition: n.diary,
		Path: filepath.Join(t.TempDir(), "shutdown"), Bus: b.connect, DropInDir: l.dropIn,
		Ref: corev1.ObjectReference{Kind: "Node", Name: "n1"}, Events: n.diary,
		Log: slog.New(slog.NewTextHandler(n.log, nil)),
	})
	n.stop = sync.OnceFunc(looptest.Start(t, n.Run, nil))
	t.Cleanup(n.stop)
	return n
}

// holds waits until the manager holds the latest inhibitor.
func (n node) holds(t *testing.T) {
	t.Helper()
	for range 10_000 {
		n.mu.Lock()
		has := n.lock != nil
		n.mu.Unlock()
		if has {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("the inhibitor is not held")
}

func receive[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(20 * time.Second):
		t.Fatalf("timed out waiting for %s", what)
		panic("unreachable")
	}
}

func (n node) journal(t *testing.T, want Journal) {
	t.Helper()
	got, err := Load(n.o.Path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreTypes(time.Time{})); diff != "" {
		t.Error(diff)
	}
	if got.Began.IsZero() || got.Ended.Before(got.Began) {
		t.Errorf("journal began %s and ended %s", got.Began, got.Ended)
	}
}

const detected = "n1 Normal Shutdown Shutdown manager detected shutdown event"

// A pod of the first group that does not end delays the second group only by the first group's time.
func TestPodsEndInOrder(t *testing.T) {
	b := newBus(t)
	l := b.login(time.Minute, false)
	pods := newMembers(aPod("critical", 2_000_000_000, 600), aPod("web", 0, 30), aPod("stuck", 0, 0))
	n := run(t, b, l, []Group{{0, 500 * time.Millisecond}, {2_000_000_000, 30 * time.Second}}, pods)
	lock := receive(t, l.inhibited, "the inhibitor")
	if err := n.Admit(); err != nil {
		t.Errorf("a pod was rejected before the shutdown: %v", err)
	}

	l.prepare(t, true)
	first := []string{receive(t, pods.stopped, "a stop"), receive(t, pods.stopped, "a stop")}
	if diff := cmp.Diff([]string{"web 500ms", "stuck 0s"}, first); diff != "" {
		t.Error(diff)
	}
	if err := n.Admit(); reason.Of(err) != reason.NodeShutdown ||
		reason.Message(err) != "Pod was rejected as the node is shutting down." {
		t.Errorf("a new pod got the answer %v", err)
	}
	lock.forget()
	if !lock.held(t) {
		t.Error("the inhibitor was released before the pods ended")
	}
	close(pods.ended["web"])
	if second := receive(t, pods.stopped, "the second group"); second != "critical 30s" {
		t.Error(second)
	}
	close(pods.ended["critical"])
	lock.released(t)
	n.stop()
	n.journal(t, Journal{Pods: []Stopped{
		{UID: "web", Namespace: "default", Name: "web", Grace: 500 * time.Millisecond, Gone: true},
		{UID: "stuck", Namespace: "default", Name: "stuck"},
		{UID: "critical", Namespace: "default", Name: "critical", Grace: 30 * time.Second, Gone: true},
	}})
	if diff := cmp.Diff([]string{"problem: node is shutting down", detected, "flush", "flush"},
		n.diary.text()); diff != "" {
		t.Error(diff)
	}
}

// An agent that starts during a shutdown ends the running pods in order once it knows them. Pods that appear later end
// with the remaining groups.
func TestAgentStartsDuringShutdown(t *testing.T) {
	b := newBus(t)
	l := b.login(time.Minute, true)
	web, late, critical := aPod("web", 0, 30), aPod("late", 0, 30), aPod("critical", 2_000_000_000, 30)
	pods, settled := newMembers(web, late, critical), make(chan struct{})
	pods.pods = nil
	n := run(t, b, l, []Group{{0, 10 * time.Second}, {2_000_000_000, 20 * time.Second}}, pods, settled)
	for n.Admit() == nil {
		time.Sleep(time.Millisecond) // until it has noticed the shutdown
	}
	pods.comes(critical)
	pods.comes(web)
	close(settled)
	got := []string{receive(t, pods.stopped, "the first group")}
	pods.comes(late)
	close(pods.ended["web"])
	got = append(got, receive(t, pods.stopped, "the second group"), receive(t, pods.stopped, "the second group"))
	if diff := cmp.Diff([]string{"web 10s", "late 10s", "critical 20s"}, got); diff != "" {
		t.Error(diff)
	}
	close(pods.ended["late"])
	close(pods.ended["critical"])
}

func TestMetrics(t *testing.T) {
	m, registry := New(Options{}), prometheus.NewRegistry()
	if err := m.Register(registry); err != nil {
		t.Fatal(err)
	}
	m.metrics.show(Journal{Began: time.Unix(100, 0), Ended: time.Unix(102, 5e8)})
	want := `# HELP kubelet_graceful_shutdown_end_time_seconds Last graceful shutdown end time since unix epoch in ` +
		`seconds
# TYPE kubelet_graceful_shutdown_end_time_seconds gauge
kubelet_graceful_shutdown_end_time_seconds 102.5
# HELP kubelet_graceful_shutdown_start_time_seconds Last graceful shutdown start time since unix epoch in seconds
# TYPE kubelet_graceful_shutdown_start_time_seconds gauge
kubelet_graceful_shutdown_start_time_seconds 100
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

func TestCancelledShutdownKeepsRemainingPods(t *testing.T) {
	b := newBus(t)
	l := b.login(time.Minute, false)
	pods := newMembers(aPod("web", 0, 30), aPod("critical", 2_000_000_000, 30))
	n := run(t, b, l, []Group{{0, 30 * time.Second}, {2_000_000_000, 30 * time.Second}}, pods)
	receive(t, l.inhibited, "the inhibitor")
	l.prepare(t, true)
	receive(t, pods.stopped, "a stop")
	l.prepare(t, false)
	receive(t, l.inhibited, "the next inhibitor")
	if err := n.Admit(); err != nil {
		t.Errorf("a pod was rejected after the cancellation: %v", err)
	}
	n.stop()
	if len(pods.stopped) > 0 {
		t.Errorf("%s was stopped", <-pods.stopped)
	}
	n.journal(t,
		Journal{Cancelled: true,
			Pods: []Stopped{{UID: "web", Namespace: "default", Name: "web", Grace: 30 * time.Second}}})
	got := n.diary.text()
	for _, line := range []string{detected, "n1 Normal Shutdown Shutdown manager detected shutdown cancellation",
		"problem: ", "problem: node is shutting down"} {
		if !strings.Contains(strings.Join(got, "\n")+"\n", line+"\n") {
			t.Errorf("%q is not logged in %q", line, got)
		}
	}
}

func TestDropInRaisesTheDelayOfLogind(t *testing.T) {
	b := newBus(t)
	l := b.login(5*time.Second, false)
	n := run(t, b, l, []Group{{0, 89*time.Second + 1}}, newMembers())
	receive(t, l.inhibited, "the inhibitor")
	n.stop()
	text, err := os.ReadFile(filepath.Join(l.dropIn, "99-kubelet.conf"))
	want := "# Pods are given this time before the machine goes down.\n[Login]\nInhibitDelayMaxSec=90\n"
	if err != nil || string(text) != want {
		t.Errorf("drop-in %q, error %v", text, err)
	}
	if n.log.Len() > 0 {
		t.Error(n.log)
	}
}

func TestTooShortDelayOfLogindIsLogged(t *testing.T) {
	b := newBus(t)
	l := b.login(5*time.Second, false)
	l.deaf = true
	n := run(t, b, l, []Group{{0, time.Minute}}, newMembers())
	receive(t, l.inhibited, "the inhibitor")
	n.stop()
	if want := "logind delays a shutdown by 5s, but the pods need up to 1m0s; next: set " +
		"InhibitDelayMaxSec"; !strings.Contains(
		n.log.String(), want) {
		t.Error(n.log)
	}
}

// A shutdown that begins while the bus is unavailable is noticed when the bus is back.
func TestShutdownIsNoticedAfterReconnect(t *testing.T) {
	b := newBus(t)
	l := b.login(time.Minute, false)
	pods := newMembers(aPod("web", 0, 30))
	n := run(t, b, l, []Group{{0, 30 * time.Second}}, pods)
	lock := receive(t, l.inhibited, "the inhibitor")
	n.holds(t)
	b.stop()
	b.start()
	b.login(time.Minute, true)
	receive(t, pods.stopped, "a stop")
	lock.forget()
	if !lock.held(t) {
		t.Error("the inhibitor was released with the bus connection")
	}
	close(pods.ended["web"])
	lock.released(t)
	n.stop()
	if !strings.Contains(n.log.String(), errDisconnected.Error()) {
		t.Error(n.log)
	}
}

func TestNoGroups(t *testing.T) {
	if err := New(Options{}).Run(t.Context()); err != nil {
		t.Error(err)
	}
}
