package drift

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/cgroupfile"
	"github.com/berth-run/berth/internal/base/inotify"
	"github.com/berth-run/berth/internal/base/looptest"
)

type recorder chan string

func (c recorder) Event(_ corev1.ObjectReference, _, reason, format string, args ...any) {
	c <- reason + ": " + fmt.Sprintf(format, args...)
}

func files(t *testing.T) cgroupfile.Group { return filesOf(t, "pod") }

// filesOf returns a cgroup of version 2 in a directory of that name, with weight 100.
func filesOf(t *testing.T, name string) cgroupfile.Group {
	t.Helper()
	g := cgroupfile.Group{Unified: true, Dirs: map[string]string{"": filepath.Join(t.TempDir(), name)}}
	if err := os.Mkdir(g.Dirs[""], 0o755); err != nil {
		t.Fatal(err)
	}
	put(t, g, "100")
	return g
}

func put(t *testing.T, g cgroupfile.Group, weight string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(g.Dirs[""], "cpu.weight"), []byte(weight), 0o644); err != nil {
		t.Fatal(err)
	}
}

func weighing(g cgroupfile.Group, repair func() error) cgroupfile.Subject {
	want := cgroupfile.Values{"cpu.weight": "100"}
	return cgroupfile.Subject{
		Level: "pod", Group: g,
		Differs: func(context.Context) ([]cgroupfile.Change, error) {
			have, err := cgroupfile.Read(g, want)
			return cgroupfile.Differences(want, have), err
		},
		Repair: func(context.Context, []cgroupfile.Change) error { return repair() },
	}
}

func running(t *testing.T, events recorder) *Watch {
	return runningWith(t, events, prometheus.NewRegistry())
}

func runningWith(t *testing.T, events recorder, metrics prometheus.Registerer) *Watch {
	t.Helper()
	w, err := New(Options{Metrics: metrics, Events: events, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(looptest.Start(t, w.Run, nil))
	return w
}

func await(t *testing.T, c <-chan string) string {
	t.Helper()
	select {
	case text := <-c:
		return text
	case <-time.After(10 * time.Second):
		t.Fatal("nothing happened within 10 s")
		return ""
	}
}

func TestChangeIsRepairedCountedAndReported(t *testing.T) {
	events, g, metrics := make(recorder, 1), files(t), prometheus.NewRegistry()
	w := runningWith(t, events, metrics)
	w.Watch("a", weighing(g, func() error { put(t, g, "100"); return nil }))
	put(t, g, "7")
	want := "CgroupRepaired: The pod's cgroup was changed from outside and is repaired: cpu.weight is 7, not 100"
	if diff := cmp.Diff(want, await(t, events)); diff != "" {
		t.Error(diff)
	}
	families, err := metrics.Gather()
	if err != nil || len(families) != 1 || families[0].GetName() != "berth_cgroup_repairs_total" ||
		families[0].Metric[0].GetCounter().GetValue() != 1 {
		t.Errorf("metrics are %v, error %v; want one repair", families, err)
	}
}

// inotify does not report what was written before the cgroup was watched.
func TestChangeBeforeItsWatchIsRepaired(t *testing.T) {
	events, early, late := make(recorder, 1), filesOf(t, "early"), filesOf(t, "late")
	w := running(t, events)
	w.Watch("early", weighing(early, func() error { put(t, early, "100"); return nil }))
	put(t, early, "7")
	await(t, events) // Run has opened inotify
	put(t, late, "7")
	w.Watch("late", weighing(late, func() error { put(t, late, "100"); return nil }))
	want := "CgroupRepaired: The pod's cgroup was changed from outside and is repaired: cpu.weight is 7, not 100"
	if diff := cmp.Diff(want, await(t, events)); diff != "" {
		t.Error(diff)
	}
}

func TestFailedRepairIsReported(t *testing.T) {
	events, g := make(recorder, 1), files(t)
	w := running(t, events)
	w.Watch("a", weighing(g, func() error { return errors.New("device or resource busy") }))
	put(t, g, "7")
	want := "FailedCgroupRepair: The pod's cgroup was changed from outside and could not be repaired: cpu.weight is " +
		"7, not 100: device or resource busy"
	if diff := cmp.Diff(want, await(t, events)); diff != "" {
		t.Error(diff)
	}
}

// The parent directory is watched too, and its watch reports the removal.
func TestRemovedCgroupIsUnwatched(t *testing.T) {
	gone, g := make(chan string, 1), files(t)
	w := running(t, make(recorder, 1))
	parent := cgroupfile.Group{Unified: true, Dirs: map[string]string{"": filepath.Dir(g.Dirs[""])}}
	w.Watch("parent", weighing(parent, nil))
	s := weighing(g, nil)
	s.Gone = func(context.Context) { gone <- "gone" }
	w.Watch("a", s)
	if err := os.RemoveAll(g.Dirs[""]); err != nil {
		t.Fatal(err)
	}
	await(t, gone)
	if w.Watched("a") {
		t.Error("the removed cgroup is still watched")
	}
}

func TestSuspicion(t *testing.T) {
	a := []cgroupfile.Change{{File: "cpu.weight", Have: "7", Want: "100"}}
	b := []cgroupfile.Change{{File: "cpu.weight", Have: "8", Want: "100"}}
	for _, test := range []struct {
		name  string
		looks [][]cgroupfile.Change
		want  []bool
	}{
		{"the change stays", [][]cgroupfile.Change{a, a}, []bool{false, true}},
		{"a change in progress", [][]cgroupfile.Change{a, nil, a}, []bool{false, false, false}},
		{"a second change stays", [][]cgroupfile.Change{a, b, b}, []bool{false, false, true}},
		{"changes continue, also after the repair", [][]cgroupfile.Change{a, b, a, b, a},
			[]bool{false, false, true, false, false}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var s suspicion
			var got []bool
			for _, found := range test.looks {
				var confirmed bool
				s, confirmed = s.next(found)
				got = append(got, confirmed)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A subject whose check hangs delays no other one, and its check is cancelled after a timeout.
func TestHangingCheckDelaysNoOther(t *testing.T) {
	events, g, checked := make(recorder, 1), files(t), make(chan string, 1)
	w := running(t, events)
	hangs := weighing(files(t), nil)
	hangs.Differs = func(ctx context.Context) ([]cgroupfile.Change, error) {
		checked <- "checked"
		<-ctx.Done()
		return nil, ctx.Err()
	}
	w.Watch("a", hangs)
	put(t, hangs.Group, "7")
	await(t, checked)
	w.Watch("b", weighing(g, func() error { put(t, g, "100"); return nil }))
	put(t, g, "7")
	want := "CgroupRepaired: The pod's cgroup was changed from outside and is repaired: cpu.weight is 7, not 100"
	if diff := cmp.Diff(want, await(t, events)); diff != "" {
		t.Error(diff)
	}

	synctest.Test(t, func(t *testing.T) {
		w, err := New(Options{Events: make(recorder), Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		hangs.Differs = func(ctx context.Context) ([]cgroupfile.Change, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		began := time.Now()
		if again := w.check(t.Context(), "a", &subject{Subject: hangs}); again || time.Since(began) != checkTimeout {
			t.Errorf("again %v after %v; want false after %v", again, time.Since(began), checkTimeout)
		}
	})
}

// A change found while a subject is held is not repaired. The subject is checked again after its release.
func TestHeldSubjectIsNotRepaired(t *testing.T) {
	events, g := make(recorder, 1), files(t)
	w := running(t, events)
	w.Watch("a", weighing(g, func() error { put(t, g, "100"); return nil }))
	release := w.Hold("a")
	put(t, g, "7")
	if taken := w.startChecks(time.Now().Add(time.Hour), everything); len(taken) != 0 {
		t.Errorf("it is checked while it is held: %v", taken)
	}
	release()
	await(t, events)
}

// A container may end while the runtime updates it. The watch goes on with the other cgroups.
func TestSubjectThatEndsWhileHeldIsNotDue(t *testing.T) {
	w := running(t, make(recorder, 1))
	release := w.Hold("b") // nothing has this key
	release()
	w.Watch("a", weighing(files(t), nil))
	release = w.Hold("a")
	w.Unwatch("a")
	release()
	if next, ok := w.due(); ok {
		t.Errorf("due at %s", next)
	}
}

func TestRemaining(t *testing.T) {
	found := []cgroupfile.Change{{File: "cpu.max", Have: "5 5", Want: "9 9"},
		{File: "cpu.weight", Have: "7", Want: "100"}}
	left := []cgroupfile.Change{{File: "cpu.max", Have: "5 5", Want: "9 9"},
		{File: "cpu.weight", Have: "8", Want: "100"}, {File: "pids.max", Have: "1", Want: "2"}}
	if diff := cmp.Diff(found[:1], remaining(found, left)); diff != "" {
		t.Error(diff)
	}
}

func TestPeriod(t *testing.T) {
	for _, test := range []struct {
		name             string
		audit            time.Duration
		recorder, missed bool
		want             time.Duration
	}{
		{"by default", 0, true, false, machinePeriod},
		{"as configured", 10 * time.Second, true, false, 10 * time.Second},
		{"one directory is not watched", 10 * time.Second, true, true, time.Second},
		{"no directory is watched", 10 * time.Second, false, false, time.Second},
	} {
		w := &Watch{opts: Options{Audit: test.audit}, subjects: map[string]*subject{"a": {unwatched: test.missed}}}
		if test.recorder {
			w.kernel = &inotify.Instance{}
		}
		if got := w.period(); got != test.want {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
}

// All subjects are checked when the machine's CPUs or memory nodes change. Otherwise only those are, besides the due
// ones, that inotify does not cover.
func TestScope(t *testing.T) {
	cpus := "0-3"
	w := &Watch{kernel: &inotify.Instance{}, machine: func() string { return cpus }}
	last := cpus
	for i, step := range []struct {
		cpus string
		want scope
	}{{"0-3", uncovered}, {"0-2", everything}, {"0-2", uncovered}} {
		cpus = step.cpus
		if got := w.scope(&last); got != step.want {
			t.Errorf("step %d: scope %d, want %d", i, got, step.want)
		}
	}
	w.kernel = nil
	if got := w.scope(&last); got != everything {
		t.Errorf("without inotify: scope %d, want %d", got, everything)
	}
}

// Each tick of an audit checks its share of the subjects, those first whose last check is the longest ago. A held
// subject takes no place of another.
func TestAudit(t *testing.T) {
	const subjects, share = 25, 3 // ten ticks of 30 s in 5 min
	w := &Watch{kernel: &inotify.Instance{}, subjects: map[string]*subject{}, dirty: map[string]time.Time{}}
	for i := range subjects {
		w.subjects[strconv.Itoa(i)] = &subject{}
	}
	w.subjects["7"].held = 1
	now, times := time.Now(), map[string]int{}
	for range int(auditPeriod / machinePeriod) {
		now = now.Add(machinePeriod)
		w.audit(now)
		started := w.startChecks(now, nothing)
		if len(started) != share {
			t.Errorf("%d checks at a tick, want %d", len(started), share)
		}
		for key, s := range started {
			times[key]++
			s.checking = false
		}
	}
	for key := range w.subjects {
		if n := times[key]; n < 1 && key != "7" || n > 2 || n > 0 && key == "7" {
			t.Errorf("subject %s was checked %d times", key, n)
		}
	}
}

// Nothing watches the parent of the highest level, so that only a look notices its removal.
func TestUncovered(t *testing.T) {
	w, err := New(Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"/none/kubepods", "/none/kubepods/burstable", "/none/kubepods/burstable/pod"} {
		w.Watch(dir, cgroupfile.Subject{Group: cgroupfile.Group{Unified: true, Dirs: map[string]string{"": dir}}})
	}
	clear(w.dirty)
	w.subjects["/none/kubepods/burstable/pod"].unwatched = true
	want := []string{"/none/kubepods", "/none/kubepods/burstable/pod"}
	if got := slices.Sorted(maps.Keys(w.startChecks(time.Now(), uncovered))); !slices.Equal(got, want) {
		t.Errorf("checked %v, want %v", got, want)
	}
}

func TestBoundsOf(t *testing.T) {
	spec := specResources(
		`{"runtimeSpec": {"linux": {"resources": {"cpu": {"shares": 512, "quota": 50000, "period": 100000, "cpus": ` +
			`"0-1"},
		"memory": {"limit": 1048576, "swap": 1048576}, "unified": {"memory.high": "4096"}}}}}`)
	got, swap := boundsOf(spec)
	want := cgroupfile.Bounds{CPUs: "0-1", Shares: 512, Quota: 50000, Period: 100000, Memory: 1 << 20, High: 4096}
	if diff := cmp.Diff(want, got); diff != "" || swap != 1<<20 {
		t.Errorf("swap %d, %s", swap, diff)
	}
	if none, _ := boundsOf(&specs.LinuxResources{}); none != (cgroupfile.Bounds{Quota: -1, Memory: -1}) {
		t.Errorf("bounds of empty resources: %+v", none)
	}
	if specResources("") != nil {
		t.Error("resources were found in an empty status")
	}
}

func TestUpdateFor(t *testing.T) {
	b := cgroupfile.Bounds{CPUs: "0", Mems: "1", Shares: 512, Quota: -1, Period: 100000, Memory: -1}
	for _, test := range []struct {
		file string
		want *runtimeapi.LinuxContainerResources
	}{
		{"cpuset.cpus", &runtimeapi.LinuxContainerResources{CpusetCpus: "0"}},
		{"cpu.shares", &runtimeapi.LinuxContainerResources{CpuShares: 512}},
		{"cpu.max", &runtimeapi.LinuxContainerResources{CpuQuota: -1, CpuPeriod: 100000}},
		{"memory.limit_in_bytes",
			&runtimeapi.LinuxContainerResources{MemoryLimitInBytes: -1, MemorySwapLimitInBytes: -1}},
	} {
		got := updateFor(b, 0, false, []cgroupfile.Change{{File: test.file}})
		if got.String() != test.want.String() {
			t.Errorf("%s: got %v, want %v", test.file, got, test.want)
		}
	}
}
