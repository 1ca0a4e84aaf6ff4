package join

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/record/event"
)

func TestAnnounceWarnsOfTheMachine(t *testing.T) {
	for name, c := range map[string]struct {
		found found
		want  []string
	}{
		"nothing to warn of": {found{unified: true, swap: true, noSwap: true}, []string{"Normal Starting"}},
		"no swap":            {found{unified: true}, []string{"Normal Starting"}},
		"cgroup v1":          {found{}, []string{"Normal Starting", "Warning CgroupV1"}},
		"memory may get to the swap": {found{unified: true, swap: true},
			[]string{"Normal Starting", "Warning PossibleMemoryBackedVolumesOnDisk"}},
		"too much DNS": {found{unified: true, resolvConf: "too many domains"},
			[]string{"Normal Starting", "Warning CheckLimitsForResolvConf"}},
	} {
		t.Run(name, func(t *testing.T) {
			events := event.New(event.Options{Component: event.Kubelet, Host: "n1"})
			announce(events, "n1", "v1", c.found)
			all, _ := events.List(event.Filter{Kind: "Node", Name: "n1"})
			var got []string
			for _, e := range all {
				got = append(got, e.Type+" "+e.Reason)
				if e.Source != (corev1.EventSource{Component: "kubelet", Host: "n1"}) {
					t.Errorf("source of %s: %+v", e.Reason, e.Source)
				}
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}
