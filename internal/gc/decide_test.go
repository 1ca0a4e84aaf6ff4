package gc

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/internal/pod"
)

func TestDecide(t *testing.T) {
	c := func(id, name, sandbox string, s pod.ContainerState) pod.ContainerStatus {
		return pod.ContainerStatus{ID: id, Name: name, SandboxID: sandbox, State: s}
	}
	box := func(id string, ready bool) pod.SandboxStatus { return pod.SandboxStatus{ID: id, Ready: ready} }
	running, exited, created, unknown := pod.StateRunning, pod.StateExited, pod.StateCreated, pod.StateUnknown
	type cs = []pod.ContainerStatus
	type boxes = []pod.SandboxStatus
	tests := []struct {
		name string
		o    *pod.Observed
		gone bool
		want work
	}{
		{name: "nothing"},
		{name: "one that runs", o: &pod.Observed{Sandboxes: boxes{box("s1", true)}, Containers: cs{c("a1", "a", "s1", running)}}},
		{name: "its predecessor stays", o: &pod.Observed{Sandboxes: boxes{box("s1", true)}, Containers: cs{c("a2", "a", "s1", running), c("a1", "a", "s1", exited)}}},
		{name: "and nothing before", o: &pod.Observed{Sandboxes: boxes{box("s1", true)},
			Containers: cs{c("a4", "a", "s1", running), c("a3", "a", "s1", exited), c("b2", "b", "s1", exited), c("a2", "a", "s1", exited), c("a1", "a", "s1", exited)}},
			want: work{Containers: cs{c("a2", "a", "s1", exited), c("a1", "a", "s1", exited)}}},
		{name: "waits for its restart", o: &pod.Observed{Sandboxes: boxes{box("s1", true)}, Containers: cs{c("a2", "a", "s1", exited), c("a1", "a", "s1", exited)}},
			want: work{Containers: cs{c("a1", "a", "s1", exited)}}},
		{name: "the newest is about to start", o: &pod.Observed{Sandboxes: boxes{box("s1", true)}, Containers: cs{c("a3", "a", "s1", created), c("a2", "a", "s1", exited)}}},
		{name: "one that was never started", o: &pod.Observed{Sandboxes: boxes{box("s1", true)}, Containers: cs{c("a3", "a", "s1", running), c("a2", "a", "s1", created), c("a1", "a", "s1", exited)}},
			want: work{Containers: cs{c("a2", "a", "s1", created)}}},
		{name: "what may run stays", o: &pod.Observed{Sandboxes: boxes{box("s1", true)}, Containers: cs{c("a3", "a", "s1", exited), c("a2", "a", "s1", unknown), c("a1", "a", "s1", running)}}},
		{name: "a replaced sandbox", o: &pod.Observed{Sandboxes: boxes{box("s2", true), box("s1", false)}, Containers: cs{c("a1", "a", "s2", running)}},
			want: work{Sandboxes: []string{"s1"}}},
		{name: "with the last dead instance in it", o: &pod.Observed{Sandboxes: boxes{box("s2", true), box("s1", false)}, Containers: cs{c("a2", "a", "s2", running), c("a1", "a", "s1", exited)}}},
		{name: "with one that goes", o: &pod.Observed{Sandboxes: boxes{box("s2", true), box("s1", false)}, Containers: cs{c("a3", "a", "s2", running), c("a2", "a", "s2", exited), c("a1", "a", "s1", exited)}},
			want: work{Containers: cs{c("a1", "a", "s1", exited)}, Sandboxes: []string{"s1"}}},
		{name: "two that are ready", o: &pod.Observed{Sandboxes: boxes{box("s2", true), box("s1", true)}}},
		{name: "the sandbox of a pod that ended", o: &pod.Observed{Sandboxes: boxes{box("s1", false)}, Containers: cs{c("a1", "a", "s1", exited)}}},
		{name: "left of a pod that is gone", gone: true, o: &pod.Observed{Sandboxes: boxes{box("s1", false)}, Containers: cs{c("a1", "a", "s0", exited), c("b1", "b", "s1", created)}},
			want: work{Containers: cs{c("a1", "a", "s0", exited), c("b1", "b", "s1", created)}, Sandboxes: []string{"s1"}}},
		{name: "running without a pod", gone: true, o: &pod.Observed{Sandboxes: boxes{box("s1", false)}, Containers: cs{c("a1", "a", "s1", running)}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, decide(tt.o, tt.gone, 1)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestStaleLogs(t *testing.T) {
	files := []string{"0.log", "0.log.20260301-120000.gz", "1.log", "2.log", "2.log.20260301-120000", "3.log", "x.log", "0.logs", "app.txt"}
	tests := []struct {
		newest, keep int
		want         []string
	}{
		{0, 1, []string{}},
		{1, 1, []string{}},
		{3, 1, []string{"0.log", "0.log.20260301-120000.gz", "1.log"}},
		{2, 2, []string{}},
		{9, 1, []string{"0.log", "0.log.20260301-120000.gz", "1.log", "2.log", "2.log.20260301-120000", "3.log"}},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, staleLogs(files, tt.newest, tt.keep)); diff != "" {
			t.Errorf("newest %d, keep %d (-want +got):\n%s", tt.newest, tt.keep, diff)
		}
	}
}

func TestDangling(t *testing.T) {
	tests := []struct {
		name  string
		files []string
		want  bool
	}{
		{"there", []string{"0.log"}, false},
		{"being rotated", []string{"0.log.20260301-120000"}, false},
		{"gone", nil, true},
		{"another instance", []string{"1.log", "10.log"}, true},
	}
	for _, tt := range tests {
		if got := dangling("0.log", tt.files); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}
