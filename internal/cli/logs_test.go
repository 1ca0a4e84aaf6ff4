package cli

import (
	"bufio"
	"io"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-run/berth/internal/api/servertest"
)

// following is a command that runs while a test changes the pods.
type following struct {
	t        *testing.T
	out, err <-chan string // lines; closed when the command has ended
	status   chan int
}

// startBerth starts a command line against the agent of a test.
func startBerth(t *testing.T, a *servertest.Agent, args string) *following {
	t.Helper()
	out, outLines := linesOf()
	stderr, errLines := linesOf()
	f := &following{t, outLines, errLines, make(chan int, 1)}
	go func() {
		words := append([]string{"--socket", a.Socket}, strings.Fields(args)...)
		status := Main(words, strings.NewReader(""), out, stderr)
		_, _ = out.Close(), stderr.Close() // a pipe returns no error
		f.status <- status
	}()
	return f
}

// linesOf returns a writer, and the lines that are written to it.
func linesOf() (io.WriteCloser, <-chan string) {
	r, w := io.Pipe()
	lines := make(chan string, 100)
	go func() {
		defer close(lines)
		for scan := bufio.NewScanner(r); scan.Scan(); {
			lines <- scan.Text()
		}
	}()
	return w, lines
}

// reads fails unless these are the next lines.
func (f *following) reads(from <-chan string, lines ...string) {
	f.t.Helper()
	for _, want := range lines {
		got, ok := <-from
		if !ok {
			f.t.Fatalf("the command ended without the line %q", want)
		}
		if got != want {
			f.t.Fatalf("the command wrote %q, want %q", got, want)
		}
	}
}

// ends fails unless the command writes nothing more and ends with this status.
func (f *following) ends(status int) {
	f.t.Helper()
	for _, from := range []<-chan string{f.out, f.err} {
		for line := range from {
			f.t.Errorf("more output: %q", line)
		}
	}
	if got := <-f.status; got != status {
		f.t.Errorf("exit status %d, want %d", got, status)
	}
}

// labelled adds a pod with one running container and the label app=web.
func labelled(a *servertest.Agent, name string) *corev1.Pod {
	p := servertest.Pod(name, "app")
	p.Labels = map[string]string{"app": "web"}
	servertest.Run(p)
	return a.Put(p)
}

func TestLogsFollowPodsThatComeLater(t *testing.T) {
	a := servertest.Start(t)
	one := labelled(a, "one")
	a.WriteLog(t, one, "app", 0, "old", "last")
	other := running(a, "other", "app")
	a.WriteLog(t, other, "app", 0, "not selected")
	f := startBerth(t, a, "logs -l app=web -f --tail 1")
	f.reads(f.out, "[pod/one/app] last")

	// A pod that starts later is followed from its first line.
	two := servertest.Pod("two", "app")
	two.Labels, two.CreationTimestamp = one.Labels, metav1.Now()
	two = a.Put(two)
	a.WriteLog(t, two, "app", 0, "hello", "again")
	a.Change(podKey(two), servertest.Run)
	f.reads(f.out, "[pod/two/app] hello", "[pod/two/app] again")

	// The end of one pod does not end the command, and a restart shows the next instance.
	a.Finish(podKey(one), 0)
	a.WriteLog(t, two, "app", 1, "restarted")
	a.Change(podKey(two), func(p *corev1.Pod) { servertest.Restart(p, 0, 1) })
	f.reads(f.out, "[pod/two/app] restarted")
	a.Finish(podKey(two), 1)
	f.ends(0)
}

func TestLogsWaitForTheFirstPodAndForReplacements(t *testing.T) {
	a := servertest.Start(t)
	f := startBerth(t, a, "logs -l app=web -f --prefix=false")
	f.reads(f.err, "No pods found with the labels app=web in namespace default, waiting for the first")
	first := servertest.Pod("web", "app")
	first.Labels = map[string]string{"app": "web"}
	first = a.Put(first)
	a.WriteLog(t, first, "app", 0, "first")
	a.Change(podKey(first), servertest.Run)
	f.reads(f.out, "first")
	a.Remove(podKey(first))
	f.reads(f.err, "No pods are left with the labels app=web in namespace default, waiting for others")
	second := servertest.Pod("web", "app")
	second.Labels = first.Labels
	second = a.Put(second)
	a.WriteLog(t, second, "app", 0, "second")
	a.Change(podKey(second), servertest.Run)
	f.reads(f.out, "second")
	a.Finish(podKey(second), 0)
	f.ends(0)
}

func TestLogsStopWhenAPodLosesItsLabels(t *testing.T) {
	a := servertest.Start(t)
	one, two := labelled(a, "one"), labelled(a, "two")
	a.WriteLog(t, one, "app", 0, "from one")
	f := startBerth(t, a, "logs -l app=web -f")
	f.reads(f.out, "[pod/one/app] from one")
	a.Change(podKey(two), func(p *corev1.Pod) { p.Labels = nil })
	a.Finish(podKey(one), 0)
	f.ends(0) // although two runs
}

func TestLogsFollowNoMoreThanAllowed(t *testing.T) {
	a := servertest.Start(t)
	one := labelled(a, "one")
	a.WriteLog(t, one, "app", 0, "from one")
	f := startBerth(t, a, "logs -l app=web -f --max-log-requests 1")
	f.reads(f.out, "[pod/one/app] from one")
	two := labelled(a, "two")
	a.WriteLog(t, two, "app", 0, "from two")
	f.reads(f.err, "warning: the log of two/app waits until another one ends: --max-log-requests allows 1")
	again := startBerth(t, a, "logs -l app=web -f --max-log-requests 1")
	again.reads(again.err, "error: logs app=web: cannot follow 2 logs: --max-log-requests allows 1",
		"next: give a higher --max-log-requests, or a narrower selector")
	again.ends(1)
	a.Finish(podKey(one), 0)
	f.reads(f.out, "[pod/two/app] from two")
	a.Finish(podKey(two), 0)
	f.ends(0)
}

func TestLogsReportTheEndOfTheAgentOnce(t *testing.T) {
	a := servertest.Start(t)
	for _, name := range []string{"one", "two"} {
		a.WriteLog(t, labelled(a, name), "app", 0, "hello")
	}
	f := startBerth(t, a, "logs -l app=web -f --prefix=false")
	f.reads(f.out, "hello", "hello")
	go func() { _ = a.Stop() }() // its result is the one of the agent's cleanup
	f.reads(f.err, "error: logs app=web: connect to the agent at "+a.Socket+": connection closed: unexpected EOF",
		"next: see the agent's log for why it ended")
	f.ends(1)
}
