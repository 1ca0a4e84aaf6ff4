package podstatus

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/pod"
)

// fakeLogs answers every Tail and counts.
type fakeLogs struct {
	text  string
	err   error
	calls int
}

func (f *fakeLogs) Tail(_ string, lines, bytes int) ([]byte, error) {
	f.calls++
	return []byte(f.text[max(0, len(f.text)-bytes):]), f.err
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
	fromLogs := pod.ContainerStatus{TerminationFromLogs: true, ExitCode: 1, LogPath: "0.log"}
	worked := fromLogs
	worked.ExitCode = 0
	tests := []struct {
		name string
		run  pod.ContainerStatus
		path string
		logs *fakeLogs
		want string
	}{
		{"the end of the file", pod.ContainerStatus{ExitCode: 1}, file, &fakeLogs{text: "log"}, strings.Repeat("x", 4093) + "end"},
		{"no file", pod.ContainerStatus{ExitCode: 1}, filepath.Join(dir, "none"), &fakeLogs{text: "log"}, ""},
		{"file before log", fromLogs, file, &fakeLogs{text: "log"}, strings.Repeat("x", 4093) + "end"},
		{"log when the file is empty", fromLogs, empty, &fakeLogs{text: strings.Repeat("y", 3000)}, strings.Repeat("y", 2048)},
		{"log when there is no file", fromLogs, "", &fakeLogs{text: "log"}, "log"},
		{"no log after success", worked, empty, &fakeLogs{text: "log"}, ""},
		{"log cannot be read", fromLogs, "", &fakeLogs{err: errors.New("gone")}, "Error on reading termination message from logs: gone"},
		{"not a plain file", pod.ContainerStatus{}, link, nil, "Error on reading termination log " + link + ": open " + link + ": too many levels of symbolic links"},
		{"a directory", pod.ContainerStatus{}, dir, nil, "Error on reading termination log " + dir + ": " + dir + " is not a regular file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var l logs
			if tt.logs != nil {
				l = tt.logs
			}
			if diff := cmp.Diff(tt.want, terminationMessage(tt.run, tt.path, l)); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMessagesShareThePodsBytes(t *testing.T) {
	p := newPod(nil, "a", "b", "c", "d")
	long := strings.Repeat("x", 4095) + "é"
	s := Compute(Input{Pod: p, Observed: observed(exited("a", "a1", 1)), Messages: map[string]string{"a1": long}, Node: node, Now: now})
	if got := len(s.ContainerStatuses[0].State.Terminated.Message); got != 12<<10/4 {
		t.Errorf("message of %d bytes, want a fourth of 12 KiB", got)
	}
	s = Compute(Input{Pod: newPod(nil, "a"), Observed: observed(exited("a", "a1", 1)), Messages: map[string]string{"a1": "a\xffb"}, Node: node, Now: now})
	if got := s.ContainerStatuses[0].State.Terminated.Message; got != "a\uFFFDb" {
		t.Errorf("message %q is not valid UTF-8 for the API", got)
	}
}

func TestUpdateWritesOnChangeAndReadsMessagesOnce(t *testing.T) {
	l := &fakeLogs{text: "boom"}
	asked := []string{}
	s := New(Options{Logs: l, MessagePath: func(uid types.UID, name string, count int) string {
		asked = append(asked, string(uid)+"/"+name+"/"+strconv.Itoa(count))
		return filepath.Join(t.TempDir(), "none")
	}})
	run := exited("app", "a1", 1)
	run.TerminationFromLogs, run.TerminationMessagePath, run.LogPath, run.RestartCount = true, "/dev/termination-log", "0.log", 2
	in := Input{Pod: newPod(nil, "app"), Observed: observed(run), Node: node, Now: now}
	first, changed := s.Update(in)
	if got := first.ContainerStatuses[0].State.Terminated.Message; !changed || got != "boom" {
		t.Fatalf("first update: changed %v, message %q", changed, got)
	}
	in.Now = now.Add(time.Minute)
	if _, changed := s.Update(in); changed || s.Table().Revision() != 1 {
		t.Errorf("an equal status was written again (revision %d)", s.Table().Revision())
	}
	if diff := cmp.Diff([]string{"u1/app/2"}, asked); diff != "" || l.calls != 1 {
		t.Errorf("message read %d times (-want +got):\n%s", l.calls, diff)
	}
	in.Observed = observed(restarted(running("app", "a2"), 3))
	if _, changed := s.Update(in); !changed {
		t.Error("a restart was not written")
	}
	s.Forget("u1")
	if _, ok := s.Get("u1"); ok {
		t.Error("a forgotten pod still has a status")
	}
}

func TestStatusesOutliveTheAgent(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		agent := func(l *fakeLogs, f func(*Statuses)) {
			s := New(Options{Dir: dir, Logs: l, Log: slog.New(slog.DiscardHandler)})
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
		crashed := exited("app", "a1", 1)
		crashed.TerminationFromLogs, crashed.LogPath = true, "0.log"
		in := Input{Pod: newPod(nil, "app"), Observed: observed(crashed), Node: node, Now: t0}
		other := Input{Pod: newPod(func(p *corev1.Pod) { p.UID = "u2" }, "app"), Node: node, Now: t0}
		var first corev1.PodStatus
		agent(&fakeLogs{text: "boom"}, func(s *Statuses) {
			first, _ = s.Update(in)
			s.Update(other)
		})
		in.Now = now // an agent later
		agent(&fakeLogs{err: errors.New("the log was removed")}, func(s *Statuses) {
			s.Retain(func(uid types.UID) bool { return uid == "u1" })
			second, _ := s.Update(in)
			if diff := cmp.Diff(first, second); diff != "" {
				t.Errorf("status after the restart (-want +got):\n%s", diff)
			}
		})
	})
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("files left: %v, %v; want that of u1 only", left, err)
	}
}

func TestFullDiskIsToldOnce(t *testing.T) {
	blocked := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		s := New(Options{Dir: filepath.Join(blocked, "sub"), Log: slog.New(slog.NewTextHandler(&log, nil))})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Run(ctx) }()
		s.Update(Input{Pod: newPod(nil, "app"), Node: node, Now: t0})
		time.Sleep(time.Minute)
		cancel()
		<-done
		if n := strings.Count(log.String(), "\n"); n != 1 {
			t.Errorf("%d lines, want one:\n%s", n, log.String())
		}
	})
}
