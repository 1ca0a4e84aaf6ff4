package gc

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/model/pod"
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
		{name: "a running container",
			o: &pod.Observed{Sandboxes: boxes{box("s1", true)}, Containers: cs{c("a1", "a", "s1", running)}}},
		{name: "the dead predecessor stays",
			o: &pod.Observed{Sandboxes: boxes{box("s1", true)},
				Containers: cs{c("a2", "a", "s1", running), c("a1", "a", "s1", exited)}}},
		{name: "older instances go", o: &pod.Observed{Sandboxes: boxes{box("s1", true)},
			Containers: cs{c("a4", "a", "s1", running), c("a3", "a", "s1", exited), c("b2", "b", "s1", exited),
				c("a2", "a", "s1", exited), c("a1", "a", "s1", exited)}},
			want: work{Containers: cs{c("a2", "a", "s1", exited), c("a1", "a", "s1", exited)}}},
		{name: "a container that waits for its restart",
			o: &pod.Observed{Sandboxes: boxes{box("s1", true)},
				Containers: cs{c("a2", "a", "s1", exited), c("a1", "a", "s1", exited)}},
			want: work{Containers: cs{c("a1", "a", "s1", exited)}}},
		{name: "the newest instance is about to start",
			o: &pod.Observed{Sandboxes: boxes{box("s1", true)},
				Containers: cs{c("a3", "a", "s1", created), c("a2", "a", "s1", exited)}}},
		{name: "an instance that was never started",
			o: &pod.Observed{Sandboxes: boxes{box("s1", true)},
				Containers: cs{c("a3", "a", "s1", running), c("a2", "a", "s1", created), c("a1", "a", "s1", exited)}},
			want: work{Containers: cs{c("a2", "a", "s1", created)}}},
		{name: "instances that may run stay",
			o: &pod.Observed{Sandboxes: boxes{box("s1", true)},
				Containers: cs{c("a3", "a", "s1", exited), c("a2", "a", "s1", unknown), c("a1", "a", "s1", running)}}},
		{name: "a replaced sandbox",
			o: &pod.Observed{Sandboxes: boxes{box("s2", true), box("s1", false)},
				Containers: cs{c("a1", "a", "s2", running)}},
			want: work{Sandboxes: []string{"s1"}}},
		{name: "a replaced sandbox with the newest dead instance",
			o: &pod.Observed{Sandboxes: boxes{box("s2", true), box("s1", false)},
				Containers: cs{c("a2", "a", "s2", running), c("a1", "a", "s1", exited)}}},
		{name: "a replaced sandbox with an instance that goes",
			o: &pod.Observed{Sandboxes: boxes{box("s2", true), box("s1", false)},
				Containers: cs{c("a3", "a", "s2", running), c("a2", "a", "s2", exited), c("a1", "a", "s1", exited)}},
			want: work{Containers: cs{c("a1", "a", "s1", exited)}, Sandboxes: []string{"s1"}}},
		{name: "two ready sandboxes", o: &pod.Observed{Sandboxes: boxes{box("s2", true), box("s1", true)}}},
		{name: "the sandbox of a pod that ended",
			o: &pod.Observed{Sandboxes: boxes{box("s1", false)}, Containers: cs{c("a1", "a", "s1", exited)}}},
		{name: "leftovers of a pod that is gone", gone: true,
			o: &pod.Observed{Sandboxes: boxes{box("s1", false)},
				Containers: cs{c("a1", "a", "s0", exited), c("b1", "b", "s1", created)}},
			want: work{Containers: cs{c("a1", "a", "s0", exited), c("b1", "b", "s1", created)},
				Sandboxes: []string{"s1"}}},
		{name: "a running container of a pod that is gone", gone: true,
			o: &pod.Observed{Sandboxes: boxes{box("s1", false)}, Containers: cs{c("a1", "a", "s1", running)}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, next := decide(tt.o, tt.gone, Policy{PerContainer: 1, Total: -1}, nil, time.Now())
			if diff := cmp.Diff(tt.want, got); diff != "" || !next.IsZero() {
				t.Errorf("(-want +got):\n%s; next %v", diff, next)
			}
		})
	}
}

// died returns a pod with one container whose instances were created at these minutes, newest first. If runs is true,
// the newest runs.
func died(now time.Time, uid types.UID, runs bool, minutes ...int) *pod.Observed {
	o := &pod.Observed{UID: uid}
	for i, m := range minutes {
		state := pod.StateExited
		if runs && i == 0 {
			state = pod.StateRunning
		}
		o.Containers = append(o.Containers, pod.ContainerStatus{
			ID: fmt.Sprintf("%s%d", uid, m), Name: "app", SandboxID: "s", State: state,
			CreatedAt: now.Add(time.Duration(m) * time.Minute), RestartCount: len(minutes) - 1 - i,
		})
	}
	return o
}

func ids(w work) []string {
	list := []string{}
	for _, c := range w.Containers {
		list = append(list, c.ID)
	}
	return list
}

func TestPolicy(t *testing.T) {
	now := time.Now()
	tests := []struct {
		name string
		o    *pod.Observed
		p    Policy
		over map[string]bool
		want []string
		next time.Time
	}{
		{"no limit", died(now, "u", true, 3, 2, 1, 0), Policy{PerContainer: -1}, nil, []string{}, time.Time{}},
		{"two stay", died(now, "u", true, 3, 2, 1, 0), Policy{PerContainer: 2}, nil, []string{"u0"}, time.Time{}},
		{"none stays", died(now, "u", true, 3, 2, 1), Policy{}, nil, []string{"u2", "u1"}, time.Time{}},
		{"only the newest stays", died(now, "u", false, 3, 2), Policy{}, nil, []string{"u2"}, time.Time{}},
		{"too young", died(now, "u", true, -1, -4, -20), Policy{MinAge: 10 * time.Minute}, nil, []string{"u-20"},
			now.Add(6 * time.Minute)},
		{"too many for the node", died(now, "u", true, 3, 2, 1), Policy{PerContainer: -1},
			map[string]bool{"u1": true, "u3": true}, []string{"u1"}, time.Time{}},
	}
	for _, tt := range tests {
		got, next := decide(tt.o, false, tt.p, tt.over, now)
		if diff := cmp.Diff(tt.want, ids(got)); diff != "" || !next.Equal(tt.next) {
			t.Errorf("%s (-want +got):\n%s; next %v, want %v", tt.name, diff, next, tt.next)
		}
	}
}

func TestRemovedMessages(t *testing.T) {
	now := time.Now()
	o := died(now, "u", true, 4, 3, 2, 1)
	o.Namespace, o.Name = "default", "web"
	o.Containers[1].State = pod.StateCreated
	for _, test := range []struct {
		p    Policy
		over map[string]bool
		want []string
	}{
		{Policy{PerContainer: 0, Total: -1}, nil, []string{"they never ran",
			"the limit of dead instances for each container is 0"}},
		{Policy{PerContainer: -1, Total: 1}, map[string]bool{"u1": true}, []string{"they never ran",
			"the limit of dead containers on the node is 1"}},
	} {
		w, _ := decide(o, false, test.p, test.over, now)
		var want []string
		for _, why := range test.want {
			want = append(want, "removed earlier instances of container app of pod default/web, because "+why)
		}
		if diff := cmp.Diff(want, removedMessages(o, w, test.p, test.over)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

func TestSurplus(t *testing.T) {
	now := time.Now()
	pods := []*pod.Observed{died(now, "a", true, 9, 8, 7, 6), died(now, "b", true, 5, 4), died(now, "c", false, 3)}
	type over = map[types.UID]map[string]bool
	tests := []struct {
		name string
		p    Policy
		want over
	}{
		{"no limit", Policy{PerContainer: -1, Total: -1}, nil},
		{"exactly the limit", Policy{PerContainer: -1, Total: 5}, over{}},
		{"containers above their share go first", Policy{PerContainer: -1, Total: 4}, over{"a": {"a6": true}}},
		{"then the oldest", Policy{PerContainer: -1, Total: 2}, over{"a": {"a6": true, "a7": true}, "b": {"b4": true}}},
		{"the newest of each stays", Policy{PerContainer: -1, Total: 0},
			over{"a": {"a6": true, "a7": true, "a8": true}, "b": {"b4": true}}},
		{"instances removed by their pod's limit do not count", Policy{PerContainer: 1, Total: 3}, over{}},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, surplus(pods, tt.p)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestStaleLogs(t *testing.T) {
	files := []string{"0.log", "0.log.20260301-120000.gz", "1.log", "2.log", "2.log.20260301-120000", "3.log", "x.log",
		"0.logs", "app.txt"}
	tests := []struct {
		in   instances
		keep int
		want []string
	}{
		{instances{newest: 0}, 1, []string{}},
		{instances{newest: 1}, 1, []string{}},
		{instances{newest: 3}, 1, []string{"0.log", "0.log.20260301-120000.gz", "1.log"}},
		{instances{newest: 2}, 2, []string{}},
		{instances{newest: 9}, 1,
			[]string{"0.log", "0.log.20260301-120000.gz", "1.log", "2.log", "2.log.20260301-120000", "3.log"}},
		{instances{newest: 3}, -1, []string{}},
		{instances{newest: 3, held: map[int]bool{0: true}}, 1, []string{"1.log"}},
		{instances{newest: 3, removed: map[int]bool{1: true}}, -1, []string{"1.log"}},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, staleLogs(files, tt.in, tt.keep)); diff != "" {
			t.Errorf("%+v, keep %d (-want +got):\n%s", tt.in, tt.keep, diff)
		}
	}
}

// Logs are checked when there is a new instance or one is removed.
func TestLogsOf(t *testing.T) {
	o := died(time.Now(), "u", true, 3, 2, 1)
	goes := work{Containers: o.Containers[2:]}
	tests := []struct {
		name string
		w    work
		was  map[string]int
		want map[string]instances
	}{
		{"no change", work{}, map[string]int{"app": 2}, map[string]instances{}},
		{"a new instance", work{}, map[string]int{"app": 1},
			map[string]instances{"app": {2, map[int]bool{0: true, 1: true, 2: true}, map[int]bool{}}}},
		{"an instance is removed", goes, map[string]int{"app": 2},
			map[string]instances{"app": {2, map[int]bool{1: true, 2: true}, map[int]bool{0: true}}}},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, logsOf(o, tt.w, tt.was, newest(o)), cmp.AllowUnexported(instances{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestDangling(t *testing.T) {
	tests := []struct {
		name  string
		files []string
		want  bool
	}{
		{"it exists", []string{"0.log"}, false},
		{"being rotated", []string{"0.log.20260301-120000"}, false},
		{"no file", nil, true},
		{"another instance", []string{"1.log", "10.log"}, true},
	}
	for _, tt := range tests {
		if got := dangling("0.log", tt.files); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}
