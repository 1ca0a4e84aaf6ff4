package pleg

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/internal/model/pod"
)

// The order is right even if the machine's clock is set back between two attempts.
func TestOrder(t *testing.T) {
	early, late := time.Unix(1000, 0), time.Unix(9000, 0)
	o := &pod.Observed{
		Sandboxes: []pod.SandboxStatus{{ID: "s0", CreatedAt: late}, {ID: "s1", Attempt: 1, CreatedAt: early}},
		Containers: []pod.ContainerStatus{{ID: "c0", CreatedAt: early}, {ID: "c1", RestartCount: 1, CreatedAt: late},
			{ID: "c2", RestartCount: 2, CreatedAt: early}, {ID: "b0", CreatedAt: late}},
	}
	order(o)
	var got []string
	for _, s := range o.Sandboxes {
		got = append(got, s.ID)
	}
	for _, c := range o.Containers {
		got = append(got, c.ID)
	}
	if diff := cmp.Diff([]string{"s1", "s0", "c2", "c1", "b0", "c0"}, got); diff != "" {
		t.Errorf("newest first (-want +got):\n%s", diff)
	}
}
