package follow_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/api/servertest"
	"github.com/berth-run/berth/internal/cli/follow"
	"github.com/berth-run/berth/internal/record/event"
	"github.com/berth-run/berth/internal/record/timeline"
)

var web = types.NamespacedName{Namespace: "default", Name: "web"}

// watched is a running Run whose output a test can wait for.
type watched struct {
	*servertest.Agent
	t          *testing.T
	interrupts chan os.Signal
	out, err   *screen
	done       chan error
	status     int
}

// screen stores its input and signals each write.
type screen struct {
	mu      sync.Mutex
	text    bytes.Buffer
	changed chan struct{}
}

func newScreen() *screen { return &screen{changed: make(chan struct{}, 1)} }

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case s.changed <- struct{}{}:
	default:
	}
	return s.text.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// run starts Run for existing pods.
func run(t *testing.T, a *servertest.Agent, timeout time.Duration, pods ...*corev1.Pod) *watched {
	t.Helper()
	return start(t, a, follow.Options{Timeout: timeout}, pods...)
}

func start(t *testing.T, a *servertest.Agent, o follow.Options, pods ...*corev1.Pod) *watched {
	t.Helper()
	w := &watched{Agent: a, t: t, interrupts: make(chan os.Signal, 3), out: newScreen(), err: newScreen(),
		done: make(chan error, 1)}
	o.Client, o.Logs, o.Interrupts, o.Out, o.Err = client.New(a.Socket), true, w.interrupts, w.out, w.err
	o.Now = func() time.Time { return time.Unix(0, 0) }
	for _, p := range pods {
		o.Pods = append(o.Pods, api.ApplyResult{Namespace: p.Namespace, Name: p.Name, UID: p.UID})
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	go func() {
		var err error
		w.status, err = follow.Run(ctx, o)
		w.done <- err
	}()
	return w
}

// shows waits until the screen contains this text.
func (w *watched) shows(s *screen, text string) {
	w.t.Helper()
	for !strings.Contains(s.String(), text) {
		select {
		case <-s.changed:
		case err := <-w.done:
			w.done <- err
			if !strings.Contains(s.String(), text) {
				w.t.Fatalf("ended (%v) without %q:\n%s", err, text, s)
			}
		}
	}
}

func running(a *servertest.Agent, name string, containers ...string) *corev1.Pod {
	p := servertest.Pod(name, containers...)
	servertest.Run(p)
	return a.Put(p)
}

func TestJob(t *testing.T) {
	a := servertest.Start(t)
	p := a.Put(servertest.Pod("web", "app"))
	a.SetTimelines(timeline.Timeline{Namespace: "default", Name: "web", UID: p.UID, Start: time.Unix(0, 0),
		End: time.Unix(1, 0)})
	w := run(t, a, 0, p)
	ref := event.PodRef(p)
	a.Events.Event(ref, corev1.EventTypeNormal, "Pulling", "image app")
	w.shows(w.err, "Pulling: image app")
	a.WriteLog(t, p, "app", 0, "hello")
	a.Change(web, servertest.Run)
	w.shows(w.err, "Pod default/web: ready")
	w.shows(w.out, "hello")
	a.Finish(web, 3)
	if err := <-w.done; err != nil {
		t.Fatal(err)
	}
	const want = `   0.000s web: Pulling: image app
   0.000s web: container app started
   0.000s web: ready
Pod default/web: ready after 1.0 s
, 1970-01-01 00:00:00.000 UTC, uid uid-1

                  start     took

   0.000s web: container app ended with exit code 3
   0.000s web: failed
`
	if diff := cmp.Diff(want, w.err.String()); diff != "" {
		t.Errorf("progress (-want +got):\n%s", diff)
	}
	if got := w.out.String(); got != "app | hello\n" {
		t.Errorf("logs: %q", got)
	}
	if got := w.status; got != 3 {
		t.Errorf("exit status %d", got)
	}
	if d := a.Deleted(); len(d) != 1 || d[0].Key != web {
		t.Errorf("deleted: %v", d)
	}
}

// The log of every instance is shown once, also of instances that came and went unseen.
func TestLogsOverRestarts(t *testing.T) {
	a := servertest.Start(t)
	p := running(a, "web", "app")
	a.WriteLog(t, p, "app", 0, "first")
	w := run(t, a, 0, p)
	w.shows(w.out, "first")
	a.WriteLog(t, p, "app", 1, "second")
	a.WriteLog(t, p, "app", 2, "third")
	a.Change(web, func(p *corev1.Pod) { servertest.Restart(p, 0, 1); servertest.Restart(p, 0, 1) })
	w.shows(w.out, "third")
	w.shows(w.err, "started again (restart 2)")
	a.Finish(web, 0)
	if err := <-w.done; err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff("app | first\napp | second\napp | third\n", w.out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSeveralPods(t *testing.T) {
	a := servertest.Start(t)
	one, two := running(a, "one", "app"), running(a, "two", "app")
	a.WriteLog(t, one, "app", 0, "from one")
	a.WriteLog(t, two, "app", 0, "from two")
	w := run(t, a, 0, one, two)
	w.shows(w.out, "one/app | from one\n")
	w.shows(w.out, "two/app | from two\n")
	a.Finish(types.NamespacedName{Namespace: "default", Name: "one"}, 0)
	w.shows(w.err, "one: succeeded")
	a.Remove(types.NamespacedName{Namespace: "default", Name: "two"})
	if err := <-w.done; err != nil {
		t.Error(err)
	}
	w.shows(w.err, "two: was deleted")
}

func TestInterrupts(t *testing.T) {
	a := servertest.Start(t)
	p := running(a, "web", "app")
	deleted := make(chan *corev1.Pod)
	a.OnDelete(func(p *corev1.Pod) { deleted <- p })
	w := run(t, a, 0, p)
	w.shows(w.err, "ready")
	for _, grace := range []int64{30, 0} {
		w.interrupts <- syscall.SIGINT
		if got := *(<-deleted).DeletionGracePeriodSeconds; got != grace {
			t.Errorf("grace %d, want %d", got, grace)
		}
	}
	w.shows(w.err, "killing the pods")
	w.interrupts <- syscall.SIGINT
	if err := <-w.done; !errors.Is(err, follow.ErrAbandoned) {
		t.Errorf("third interrupt: %v", err)
	}
}

func TestInterruptWithACleanEnd(t *testing.T) {
	a := servertest.Start(t)
	p := running(a, "web", "app")
	a.WriteLog(t, p, "app", 0, "hello")
	a.OnDelete(func(*corev1.Pod) {
		a.WriteLog(t, p, "app", 0, "goodbye")
		a.Finish(web, 0)
		a.Remove(web)
	})
	w := run(t, a, 0, p)
	w.shows(w.out, "hello")
	w.interrupts <- syscall.SIGTERM
	if err := <-w.done; err != nil {
		t.Error(err)
	}
	if got := w.out.String(); got != "app | hello\napp | goodbye\n" {
		t.Errorf("logs: %q", got)
	}
	if got := w.status; got != 0 {
		t.Errorf("exit status %d", got)
	}
}

func TestUntilReady(t *testing.T) {
	a := servertest.Start(t)
	one, two := running(a, "one", "app"), a.Put(servertest.Pod("two", "app"))
	w := start(t, a, follow.Options{UntilReady: true}, one, two)
	w.shows(w.err, "one: ready")
	if d := a.Deleted(); len(d) > 0 {
		t.Errorf("deleted too early: %v", d)
	}
	a.Change(types.NamespacedName{Namespace: "default", Name: "two"}, servertest.Run)
	if err := <-w.done; err != nil {
		t.Error(err)
	}
	w.shows(w.err, "all are up")
	if got := w.status; got != 0 || len(a.Deleted()) != 2 {
		t.Errorf("exit status %d, deleted %v", got, a.Deleted())
	}
}

// A container that its own stop kills has not failed: the pod was ready, and that was the question. A pod that
// ended before counts.
func TestUntilReadyEndsByASignal(t *testing.T) {
	for code, want := range map[int32]int{0: 0, 3: 3} {
		a := servertest.Start(t)
		job, up := running(a, "job", "app"), a.Put(servertest.Pod("web", "app"))
		a.OnDelete(func(p *corev1.Pod) {
			if p.Name == up.Name {
				a.Finish(web, 143)
			}
			a.Remove(types.NamespacedName{Namespace: p.Namespace, Name: p.Name})
		})
		w := start(t, a, follow.Options{UntilReady: true}, job, up)
		w.shows(w.err, "job: ready")
		a.Finish(types.NamespacedName{Namespace: "default", Name: "job"}, code)
		w.shows(w.err, "job: container app ended")
		a.Change(web, servertest.Run)
		if err := <-w.done; err != nil || w.status != want {
			t.Errorf("a job that ended with %d: exit status %d (%v), want %d", code, w.status, err, want)
		}
	}
}

func TestTimeout(t *testing.T) {
	a := servertest.Start(t)
	up := running(a, "up", "app")
	p := servertest.Pod("web", "app")
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app",
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}}}}
	w := run(t, a, 300*time.Millisecond, up, a.Put(p))
	err := <-w.done
	if want := "not ready after 300ms: default/web (app: ErrImagePull)"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if client.NextStep(err) == "" {
		t.Error("no next step")
	}
	if len(a.Deleted()) != 2 {
		t.Errorf("deleted: %v", a.Deleted())
	}
}

// A pod whose image cannot be pulled ends a run that waits until all pods are ready.
func TestUntilReadyEndsWithTheReasonOfAStuckPod(t *testing.T) {
	a := servertest.Start(t)
	up, p := running(a, "up", "app"), a.Put(servertest.Pod("web", "app"))
	w := start(t, a, follow.Options{UntilReady: true}, up, p)
	w.shows(w.err, "up: ready")
	wait := func(why string) {
		a.Change(web, func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{
				Waiting: &corev1.ContainerStateWaiting{Reason: why, Message: "no such image"}}}}
		})
	}
	wait("ErrImagePull")
	w.shows(w.err, "waits: ErrImagePull")
	if d := a.Deleted(); len(d) > 0 {
		t.Errorf("deleted after the first failure: %v", d)
	}
	wait("ImagePullBackOff")
	err := <-w.done
	const want = "default/web cannot become ready: container app: ImagePullBackOff: no such image"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if client.NextStep(err) == "" || len(a.Deleted()) != 2 {
		t.Errorf("next step %q, deleted %v", client.NextStep(err), a.Deleted())
	}
}

func TestAgentGoesAway(t *testing.T) {
	a := servertest.Start(t)
	w := run(t, a, 0, running(a, "web", "app"))
	w.shows(w.err, "ready")
	if err := a.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := <-w.done; err == nil || client.NextStep(err) == "" {
		t.Errorf("got %v", err)
	}
}

func TestPodThatIsGoneAlready(t *testing.T) {
	a := servertest.Start(t)
	w := run(t, a, 0, &corev1.Pod{})
	if err := <-w.done; err != nil || w.status != 1 {
		t.Errorf("got %v, %v", w.status, err)
	}
}

func TestLines(t *testing.T) {
	out := &bytes.Buffer{}
	lines := follow.NewLines(out)
	a, b := lines.Prefixed("a "), lines.Prefixed("b ")
	for _, write := range []struct {
		w    *follow.Prefixed
		text string
	}{{a, "one"}, {b, "two\nthr"}, {a, " more\n"}, {b, "ee"}, {a, strings.Repeat("x", 65<<10)}, {a, "\nend"}} {
		if _, err := io.WriteString(write.w, write.text); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(b.Close(), a.Close(), a.Close()); err != nil {
		t.Fatal(err)
	}
	want := "b two\na one more\na " + strings.Repeat("x", 65<<10) + "\nb three\na end\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
