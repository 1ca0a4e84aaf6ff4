package join

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/record/event"
)

func TestAnnounceWarnsOfCgroupV1(t *testing.T) {
	for unified, want := range map[bool][]string{true: {"Normal Starting"},
		false: {"Normal Starting", "Warning CgroupV1"}} {
		events := event.New(event.Options{Component: event.Kubelet, Host: "n1"})
		announce(events, "n1", "v1", unified)
		all, _ := events.List(event.Filter{Kind: "Node", Name: "n1"})
		var got []string
		for _, e := range all {
			got = append(got, e.Type+" "+e.Reason)
			if e.Source != (corev1.EventSource{Component: "kubelet", Host: "n1"}) {
				t.Errorf("source of %s: %+v", e.Reason, e.Source)
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("with cgroup v2 %t: %s", unified, d)
		}
	}
}
