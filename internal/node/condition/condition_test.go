package condition

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

var (
	now    = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	before = now.Add(-time.Hour)
)

func well() Facts {
	return Facts{Runtime: {Well: now}, Network: {Well: now}}
}

func with(f Facts, kind Kind, fact Fact) Facts {
	f[kind] = fact
	return f
}

func condition(of corev1.NodeConditionType, status corev1.ConditionStatus, reason, message string,
	since time.Time) corev1.NodeCondition {
	return corev1.NodeCondition{
		Type: of, Status: status, Reason: reason, Message: message,
		LastHeartbeatTime: metav1.NewTime(now), LastTransitionTime: metav1.NewTime(since),
	}
}

func TestDecide(t *testing.T) {
	memory := condition(corev1.NodeMemoryPressure, "False", "KubeletHasSufficientMemory",
		"kubelet has sufficient memory available", now)
	disk := condition(corev1.NodeDiskPressure, "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure", now)
	pid := condition(corev1.NodePIDPressure, "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available",
		now)
	ready := condition(corev1.NodeReady, "True", "KubeletReady", "kubelet is posting ready status", now)
	unready := func(message string) []corev1.NodeCondition {
		return []corev1.NodeCondition{memory, disk, pid,
			condition(corev1.NodeReady, "False", "KubeletNotReady", message, now)}
	}
	since := func(c corev1.NodeCondition, at time.Time) corev1.NodeCondition {
		c.LastTransitionTime = metav1.NewTime(at)
		return c
	}
	for name, test := range map[string]struct {
		facts  Facts
		before []corev1.NodeCondition
		want   []corev1.NodeCondition
	}{
		"well": {facts: well(), want: []corev1.NodeCondition{memory, disk, pid, ready}},
		"nothing said": {facts: Facts{},
			want: unready("[container runtime status check may not have completed yet, network state unknown]")},
		"runtime silent for less than 30 s": {
			facts: with(well(), Runtime, Fact{Well: now.Add(-RuntimeSilence + 1)}),
			want:  []corev1.NodeCondition{memory, disk, pid, ready}},
		"runtime silent for 30 s": {
			facts: with(well(), Runtime, Fact{Well: now.Add(-RuntimeSilence)}),
			want:  unready("container runtime is down")},
		"runtime down and not ready, no network": {
			facts: Facts{Runtime: {Well: before, Problem: "container runtime not ready: a"}, Network: {Problem: "b"}},
			want:  unready("[container runtime is down, container runtime not ready: a, b]")},
		"pod lifecycle": {facts: with(well(), PodLifecycle, Fact{Problem: "last seen active 3m1s ago"}),
			want: unready("PLEG is not healthy: last seen active 3m1s ago")},
		"storage": {facts: with(well(), Storage, Fact{Problem: "CSINode is not yet initialized"}),
			want: unready("CSINode is not yet initialized")},
		"shutdown": {facts: with(well(), Shutdown, Fact{Problem: "node is shutting down"}),
			want: unready("node is shutting down")},
		"pod range": {facts: with(well(), PodRange, Fact{Problem: "x"}),
			want: []corev1.NodeCondition{memory, disk, pid,
				condition(PodRangeOverlap, "True", "NetworksOverlap", "x", now), ready}},
		"pod range free again": {facts: with(well(), PodRange, Fact{Well: now}),
			want: []corev1.NodeCondition{memory, disk, pid,
				condition(PodRangeOverlap, "False", "NoOverlap", "pod addresses overlap with no other network", now),
				ready}},
		"the same problem twice": {facts: with(with(well(), Storage, Fact{Problem: "x"}), Network, Fact{Problem: "x"}),
			want: unready("x")},
		"pressures": {
			facts: with(with(with(well(), MemoryPressure, Fact{Problem: "y"}), DiskPressure, Fact{Problem: "y"}),
				PIDPressure, Fact{Problem: "y"}),
			want: []corev1.NodeCondition{
				condition(corev1.NodeMemoryPressure, "True", "KubeletHasInsufficientMemory",
					"kubelet has insufficient memory available", now),
				condition(corev1.NodeDiskPressure, "True", "KubeletHasDiskPressure", "kubelet has disk pressure", now),
				condition(corev1.NodePIDPressure, "True", "KubeletHasInsufficientPID",
					"kubelet has insufficient PID available", now),
				ready,
			}},
		"transition times": {
			facts: well(),
			before: []corev1.NodeCondition{
				since(memory, before),
				condition(corev1.NodeReady, "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.",
					before),
				condition(corev1.NodeNetworkUnavailable, "False", "Routed", "", before),
			},
			want: []corev1.NodeCondition{since(memory, before), disk, pid, ready}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, Decide(test.facts, test.before, now)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestEvents(t *testing.T) {
	good := Decide(well(), nil, now)
	bad := Decide(with(with(well(), Shutdown, Fact{Problem: "x"}), MemoryPressure, Fact{Problem: "x"}), good, now)
	for name, test := range map[string]struct {
		before, after []corev1.NodeCondition
		want          []string
	}{
		"first":  {nil, good, []string{"NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID"}},
		"same":   {good, good, nil},
		"worse":  {good, bad, []string{"NodeHasInsufficientMemory", "NodeNotReady"}},
		"better": {bad, good, []string{"NodeHasSufficientMemory", "NodeReady"}},
	} {
		if diff := cmp.Diff(test.want, Events(test.before, test.after)); diff != "" {
			t.Error(name, diff)
		}
	}
}

func TestSame(t *testing.T) {
	one := Decide(well(), nil, now)
	later := Decide(well(), one, now.Add(time.Second))
	other := Decide(with(well(), Shutdown, Fact{Problem: "x"}), one, now)
	got := []bool{Same(one, later), Same(one, other), Same(one, one[1:])}
	if diff := cmp.Diff([]bool{true, false, false}, got); diff != "" {
		t.Error(diff)
	}
}

// runtime reports its status to a table every 5 s.
type runtime struct {
	table *Table
	mu    sync.Mutex
	says  *runtimeapi.StatusResponse // nil: it does not answer
}

// set replaces the status and reports it at once.
func (r *runtime) set(says *runtimeapi.StatusResponse) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.says = says
	if says != nil {
		r.table.SetRuntimeStatus(says)
	}
}

func (r *runtime) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(5 * time.Second):
		}
		r.mu.Lock()
		if r.says != nil {
			r.table.SetRuntimeStatus(r.says)
		}
		r.mu.Unlock()
	}
}

func answer(ready, network bool) *runtimeapi.StatusResponse {
	return &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
		{Type: runtimeapi.RuntimeReady, Status: ready, Reason: "Why"},
		{Type: runtimeapi.NetworkReady, Status: network, Reason: "NetworkPluginNotReady", Message: "no config"},
	}}}
}

// A runtime starts, loses its network, dies and comes back. Watchers are woken at each of these moments, not at the
// next report.
func TestTableFollowsTheRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		table := New()
		r := &runtime{table: table}
		start := time.Now()
		var seen []string
		go func() {
			for ctx.Err() == nil {
				changed := table.Changed()
				if last := len(seen) - 1; last < 0 || seen[last] != table.Ready() {
					seen = append(seen, table.Ready())
				}
				select {
				case <-changed:
				case <-ctx.Done():
				}
			}
		}()
		go table.Run(ctx) //nolint:errcheck // Run returns no error
		go r.run(ctx)

		time.Sleep(time.Second)
		r.set(answer(true, true))
		time.Sleep(time.Minute)
		r.set(answer(true, false))
		time.Sleep(time.Minute)
		r.set(answer(true, true))
		time.Sleep(10 * time.Second)
		r.set(nil)
		time.Sleep(RuntimeSilence + time.Second)
		r.set(answer(true, true))
		time.Sleep(time.Second)
		synctest.Wait()
		want := []string{
			"[container runtime status check may not have completed yet, network state unknown]",
			"",
			"container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:no config",
			"",
			"container runtime is down",
			"",
		}
		if diff := cmp.Diff(want, seen); diff != "" {
			t.Error(diff)
		}
		if took := time.Since(start); took > 3*time.Minute {
			t.Errorf("the sequence took %s", took)
		}
		cancel()
		synctest.Wait()
	})
}

func TestReadWithoutConditions(t *testing.T) {
	runtime, network := read(&runtimeapi.StatusResponse{})
	want := []string{"container runtime not ready: the runtime has no condition RuntimeReady",
		"container runtime network not ready: the runtime has no condition NetworkReady"}
	if diff := cmp.Diff(want, []string{runtime, network}); diff != "" {
		t.Error(diff)
	}
}
