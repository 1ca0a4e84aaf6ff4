package hierarchy

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/cgroups"
)

func TestResourcesOfVersions(t *testing.T) {
	l := Limits{Shares: 1024, Quota: 50000, Period: 100000, Memory: 1 << 20, Pids: 10, HugePages: map[int64]int64{}}
	all := map[string]bool{"cpu": true, "memory": true, "pids": true}
	pids := int64(10)
	tests := map[string]struct {
		tree *Tree
		want cgroups.Resources
	}{
		"version 1": {&Tree{controllers: all},
			cgroups.Resources{CpuShares: 1024, CpuQuota: 50000, CpuPeriod: 100000, Memory: 1 << 20, PidsLimit: &pids}},
		"version 2": {&Tree{controllers: all, unified: true},
			cgroups.Resources{CpuWeight: 100, CpuQuota: 50000, CpuPeriod: 100000, Memory: 1 << 20, PidsLimit: &pids}},
		"nothing": {&Tree{}, cgroups.Resources{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.want.SkipDevices, test.want.SkipFreezeOnSet = true, true
			if d := cmp.Diff(&test.want, test.tree.resources(l)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
	want := []*cgroups.HugepageLimit{{Pagesize: "1GB"}, {Pagesize: "2MB", Limit: 4 << 20}, {Pagesize: "64KB"}}
	if d := cmp.Diff(want, hugePages(map[int64]int64{2 << 20: 4 << 20}, []string{"2MB", "64KB", "1GB"})); d != "" {
		t.Errorf("huge pages (-want +got):\n%s", d)
	}
}
