package status

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/plan"
	"github.com/berth-run/berth/internal/pod/podstatus"
)

var (
	t0   = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	now  = t0.Add(time.Hour)
	node = podstatus.Node{Runtime: "containerd", HostIPs: []string{"192.0.2.1", "2001:db8::1"}}
)

// newPod is a pod with one container, app.
func newPod(uid types.UID) *pod.Pod {
	return &pod.Pod{Pod: &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: uid, Generation: 3},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "img"}}},
	}}
}

// observed is a pod with a ready sandbox.
func observedOf(containers ...pod.ContainerStatus) *pod.Observed {
	return &pod.Observed{
		Sandboxes:  []pod.SandboxStatus{{ID: "box", Ready: true, IPs: []string{"10.0.0.7"}}},
		Containers: containers,
	}
}

func running(id string) pod.ContainerStatus {
	return pod.ContainerStatus{ID: id, SandboxID: "box", Name: "app", State: pod.StateRunning, Image: "img",
		ImageID: "sha256:1", StartedAt: t0.Add(time.Second)}
}

func exited(id string, code int32) pod.ContainerStatus {
	s := running(id)
	s.State, s.ExitCode, s.Reason, s.FinishedAt = pod.StateExited, code, "Error", t0.Add(2*time.Second)
	if code == 0 {
		s.Reason = "Completed"
	}
	return s
}

// writeLog writes a container's log of these lines and returns its path.
func writeLog(t *testing.T, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "0.log")
	var b strings.Builder
	for _, line := range lines {
		b.WriteString("2026-03-01T12:00:00.000000000Z stderr F " + line + "\n")
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTerminationMessage(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	file, empty := write("full", strings.Repeat("x", 5000)+"end"), write("empty", "")
	link := filepath.Join(dir, "link")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	pipe, away, huge := filepath.Join(dir, "pipe"), filepath.Join(t.TempDir(), "away"), write("huge", "")
	if err := errors.Join(unix.Mkfifo(pipe, 0o600), os.Symlink(dir, away), os.Truncate(huge, 1<<40)); err != nil {
		t.Fatal(err)
	}
	var many []string
	for i := range 100 {
		many = append(many, strconv.Itoa(i))
	}
	fromLog := func(code int32, lines ...string) pod.ContainerStatus {
		return pod.ContainerStatus{TerminationFromLogs: true, ExitCode: code, LogPath: writeLog(t, lines...)}
	}
	tests := []struct {
		name string
		run  pod.ContainerStatus
		path string
		want string
	}{
		{"the end of the file", pod.ContainerStatus{ExitCode: 1}, file, strings.Repeat("x", 4093) + "end"},
		{"no file", pod.ContainerStatus{ExitCode: 1}, filepath.Join(dir, "none"), ""},
		{"file before log", fromLog(1, "log"), file, strings.Repeat("x", 4093) + "end"},
		{"log when the file is empty", fromLog(1, "one", "two"), empty, "one\ntwo\n"},
		{"last lines of the log", fromLog(1, many...), "", strings.Join(many[20:], "\n") + "\n"},
		{"last bytes of the log", fromLog(1, strings.Repeat("y", 3000)), "", strings.Repeat("y", 2047) + "\n"},
		{"no log after success", fromLog(0, "log"), empty, ""},
		{"no log of what could not be started", pod.ContainerStatus{TerminationFromLogs: true, ExitCode: 1}, "", ""},
		{"log cannot be read", pod.ContainerStatus{TerminationFromLogs: true, ExitCode: 1, LogPath: dir + "/no.log"},
			"",
			"Error on reading termination message from logs: open log: open " + dir + "/no.log: file does not exist"},
		{"not a plain file", pod.ContainerStatus{}, link,
			"Error on reading termination log " + link + ": not a regular file but a symbolic link"},
		{"a pipe", pod.ContainerStatus{}, pipe,
			"Error on reading termination log " + pipe + ": not a regular file but a named pipe"},
		{"a device", pod.ContainerStatus{}, "/dev/zero",
			"Error on reading termination log /dev/zero: not a regular file but a device"},
		{"behind a link", pod.ContainerStatus{}, filepath.Join(away, "full"),
			"Error on reading termination log " + filepath.Join(away, "full") +
				": not a regular file but behind a symbolic link"},
		{"a huge file", pod.ContainerStatus{}, huge, strings.Repeat("\x00", 4096)},
		{"a directory", pod.ContainerStatus{}, dir,
			"Error on reading termination log " + dir + ": not a regular file but a directory"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, terminationMessage(tt.run, tt.path)); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
		})
	}
}

// logs are termination logs that do not exist. of lists the runs of containers that MessagePath was called for.
type logs struct {
	missing string
	of      []string
}

func (l *logs) MessagePath(uid types.UID, name string, count int) string {
	l.of = append(l.of, string(uid)+"/"+name+"/"+strconv.Itoa(count))
	return l.missing
}

func TestUpdateWritesOnChangeAndReadsMessagesOnce(t *testing.T) {
	asked := logs{missing: filepath.Join(t.TempDir(), "none")}
	s := NewRecord(RecordOptions{Dirs: &asked})
	run := exited("a1", 1)
	run.TerminationFromLogs, run.TerminationMessagePath, run.LogPath, run.RestartCount = true, "/dev/termination-log",
		writeLog(t, "boom"), 2
	in := podstatus.Input{Pod: newPod("u1"), Observed: observedOf(run), Node: node, Now: now}
	first, changed := updated(s, in)
	if got := first.ContainerStatuses[0].State.Terminated.Message; !changed || got != "boom\n" {
		t.Fatalf("first update: changed %v, message %q", changed, got)
	}
	in.Now = now.Add(time.Minute)
	if _, changed := updated(s, in); changed || s.table.Revision() != 1 {
		t.Errorf("an equal status was written again (revision %d)", s.table.Revision())
	}
	if diff := cmp.Diff([]string{"u1/app/2"}, asked.of); diff != "" {
		t.Errorf("messages read (-want +got):\n%s", diff)
	}
	again := running("a2")
	again.RestartCount = 3
	in.Observed = observedOf(again)
	if _, changed := updated(s, in); !changed {
		t.Error("a restart was not written")
	}
	s.forget("u1")
	if _, ok := s.table.Get("u1"); ok {
		t.Error("a forgotten pod still has a status")
	}
}

// A pod that comes back under its UID starts afresh, even if the agent is killed before its next save.
func TestForgottenBeforeAKill(t *testing.T) {
	dir := t.TempDir()
	s := NewRecord(RecordOptions{Dir: dir, Log: slog.New(slog.DiscardHandler)})
	ended := podstatus.Input{Pod: newPod("u1"), Observed: observedOf(exited("a1", 1)),
		Plan: &plan.Plan{Done: true, Failed: true}, Node: node, Now: t0}
	if status, _ := updated(s, ended); status.Phase != corev1.PodFailed {
		t.Fatalf("phase %s", status.Phase)
	}
	kept := func() corev1.PodPhase {
		next := NewRecord(RecordOptions{Dir: dir, Log: slog.New(slog.DiscardHandler)})
		if err := next.Load(); err != nil {
			t.Fatal(err)
		}
		return next.Last("u1").Phase
	}
	if phase := kept(); phase != corev1.PodFailed {
		t.Errorf("kept phase %q before", phase)
	}
	s.forget("u1")
	if phase := kept(); phase != "" {
		t.Errorf("kept phase %q of a forgotten pod", phase)
	}
}

func TestStatusesOutliveTheAgent(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		agent := func(f func(*Record)) {
			s := NewRecord(RecordOptions{Dir: dir, Log: slog.New(slog.DiscardHandler)})
			if err := s.Load(); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- s.Run(ctx) }()
			f(s)
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("Run: %v", err)
			}
		}
		crashed := exited("a1", 1)
		crashed.TerminationFromLogs, crashed.LogPath = true, writeLog(t, "boom")
		in := podstatus.Input{Pod: newPod("u1"), Observed: observedOf(crashed), Node: node, Now: t0}
		other := podstatus.Input{Pod: newPod("u2"), Node: node, Now: t0}
		var first corev1.PodStatus
		agent(func(s *Record) {
			first, _ = updated(s, in)
			updated(s, other)
		})
		in.Now = now // an agent later, and the log is gone
		if err := os.Remove(crashed.LogPath); err != nil {
			t.Fatal(err)
		}
		agent(func(s *Record) {
			s.Retain(func(uid types.UID) bool { return uid == "u1" })
			second, _ := updated(s, in)
			if diff := cmp.Diff(first, second); diff != "" {
				t.Errorf("status after the restart (-want +got):\n%s", diff)
			}
		})
	})
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("files left: %v, %v; want only the file of u1", left, err)
	}
}

// The end of a pod is on disk before any reader sees it, and the next agent continues from it. It does not continue
// from a rejection, or from the end by a shutdown of the node.
func TestAnEndIsKept(t *testing.T) {
	dir := t.TempDir()
	done := podstatus.Input{Pod: newPod("u1"), Observed: observedOf(exited("a1", 0)), Plan: &plan.Plan{Done: true},
		Node: node, Now: t0}
	rejected := podstatus.Input{Pod: newPod("u2"),
		Refused: &podstatus.Refusal{Reason: "OutOfcpu", Message: "no room", Final: true}, Node: node, Now: t0}
	shutdown := podstatus.Input{Pod: newPod("u3"), Stop: &pod.Stop{Reason: "Terminated"},
		Terminated: true, Node: node, Now: t0}
	s := NewRecord(RecordOptions{Dir: dir, Log: slog.New(slog.DiscardHandler)})
	for _, in := range []podstatus.Input{done, rejected, shutdown} {
		updated(s, in) // then the agent is killed: Run has saved nothing
	}
	next := NewRecord(RecordOptions{Dir: dir})
	if err := next.Load(); err != nil {
		t.Fatal(err)
	}
	got := map[types.UID][2]corev1.PodPhase{}
	for _, uid := range []types.UID{"u1", "u2", "u3", "u4"} {
		got[uid] = [2]corev1.PodPhase{next.Last(uid).Phase, next.Kept(uid).Phase}
	}
	want := map[types.UID][2]corev1.PodPhase{
		"u1": {corev1.PodSucceeded, corev1.PodSucceeded}, "u2": {corev1.PodFailed, ""}, "u3": {corev1.PodFailed, ""},
		"u4": {},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("phases, and those gone on from (-want +got):\n%s", diff)
	}
	if !podstatus.WasRefused(next.Last("u2"), *rejected.Refused) ||
		podstatus.WasRefused(next.Last("u2"),
			podstatus.Refusal{Reason: "OutOfcpu", Message: "less room", Final: true}) {
		t.Error("two different refusals count as the same")
	}
}

func TestFullDiskIsLoggedOnce(t *testing.T) {
	blocked := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		s := NewRecord(RecordOptions{Dir: filepath.Join(blocked, "sub"), Log: slog.New(slog.NewTextHandler(&log, nil))})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Run(ctx) }()
		updated(s, podstatus.Input{Pod: newPod("u1"), Node: node, Now: t0})
		time.Sleep(time.Minute)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v", err)
		}
		if n := strings.Count(log.String(), "\n"); n != 1 {
			t.Errorf("%d lines, want one:\n%s", n, log.String())
		}
	})
}

// The last output of a container may reach the log after the end of the container is seen.
func TestMessageOfALogThatIsStillWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	log, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	written := make(chan error, 1)
	go func() {
		time.Sleep(20 * time.Millisecond) // there is no event for a reader that waits
		_, err := log.WriteString("2026-03-01T12:00:00.000000001Z stdout F last words\n")
		written <- errors.Join(err, log.Close())
	}()
	got := terminationMessage(pod.ContainerStatus{TerminationFromLogs: true, ExitCode: 1, LogPath: path}, "")
	if err := <-written; err != nil || got != "last words\n" {
		t.Errorf("%q, %v", got, err)
	}
}

// A condition that a user has set is on disk before the user has the answer, also while other changes are being saved.
func TestASaveDoesNotBringBackAnEarlierStatus(t *testing.T) {
	dir := t.TempDir()
	r := NewRecord(RecordOptions{Dir: dir, Log: slog.New(slog.DiscardHandler)})
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-done:
				return
			default:
				r.touch("u1")
				r.flush()
			}
		}
	}()
	in := podstatus.Input{Pod: newPod("u1"), Observed: observedOf(running("c1")), Node: node, Now: now}
	for i := range 500 {
		want := strconv.Itoa(i)
		r.setCondition("u1", corev1.PodCondition{Type: "example.com/lb", Status: corev1.ConditionTrue, Message: want})
		updated(r, in)
		next := NewRecord(RecordOptions{Dir: dir, Log: slog.New(slog.DiscardHandler)})
		r.disk.Lock() // an agent that was killed writes nothing
		err := next.Load()
		r.disk.Unlock()
		got := fmt.Sprint(err)
		for _, c := range next.Last("u1").Conditions {
			if c.Type == "example.com/lb" {
				got = c.Message
			}
		}
		if got != want {
			t.Errorf("an agent that starts now reads the condition %q, want %q", got, want)
			break
		}
	}
	close(done)
	<-stopped
}

// updated updates the status of a pod as its worker does: it waits for termination messages.
func updated(r *Record, in podstatus.Input) (status corev1.PodStatus, changed bool) {
	await(func() (wait *reading) {
		status, changed, wait = r.update(in)
		return wait
	})
	return status, changed
}
