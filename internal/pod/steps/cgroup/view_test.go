package cgroup

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/internal/model/pod"
)

func TestSandboxesFromBeforeTheLossAreNotReady(t *testing.T) {
	lost := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	o := &pod.Observed{UID: "a", Sandboxes: []pod.SandboxStatus{
		{ID: "new", Ready: true, CreatedAt: lost.Add(time.Second)},
		{ID: "old", Ready: true, CreatedAt: lost.Add(-time.Second)},
		{ID: "ended", CreatedAt: lost.Add(time.Second)},
	}}
	got := withoutSandboxesBefore(o, lost, lost.Add(time.Minute))
	ready := map[string]bool{}
	for _, s := range got.Sandboxes {
		ready[s.ID] = s.Ready
	}
	if diff := cmp.Diff(map[string]bool{"new": true, "old": false, "ended": false}, ready); diff != "" {
		t.Errorf("ready (-want +got):\n%s", diff)
	}
	if !o.Sandboxes[1].Ready {
		t.Error("the runtime's reading was changed")
	}
}
