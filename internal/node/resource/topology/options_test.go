package topology_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/node/machine"
	"github.com/berth-run/berth/internal/node/resource/topology"
	"github.com/berth-run/berth/internal/node/resource/topology/topologytest"
)

func TestCheck(t *testing.T) {
	unknown := topologytest.UpTo(2)
	unknown[1].Distances = nil
	accelerators := append(topologytest.UpTo(2), topologytest.Line(248, 249, 250, 251, 252, 253, 254, 255)...)
	tests := []struct {
		name    string
		options topology.Options
		nodes   []machine.Node
		want    string
	}{
		{"policy none accepts everything", topology.Options{Policy: topology.None, MaxNodes: 1}, topologytest.UpTo(64),
			""},
		{"the default number of nodes", topology.Options{Policy: topology.Restricted}, topologytest.UpTo(8), ""},
		{"more nodes than the default", topology.Options{Policy: topology.Restricted}, topologytest.UpTo(9),
			"topologyManagerPolicy restricted: the machine has 9 NUMA nodes and max-allowable-numa-nodes is 8; next: " +
				"raise it to 9"},
		{"raised", topology.Options{Policy: topology.Restricted, Scope: topology.ScopePod, MaxNodes: 16},
			topologytest.UpTo(16), ""},
		{"raised beyond reason", topology.Options{Policy: topology.Restricted, MaxNodes: 64}, topologytest.UpTo(32),
			"topologyManagerPolicy restricted: the machine has 32 NUMA nodes, more than the 20 that are supported; " +
				"next: use policy none"},
		{"lowered", topology.Options{Policy: topology.BestEffort, MaxNodes: 4}, topologytest.UpTo(2),
			"topologyManagerPolicyOptions: max-allowable-numa-nodes is 4, the least is 8"},
		{"accelerators' memory", topology.Options{Policy: topology.BestEffort, PreferClosest: true}, accelerators, ""},
		{"CPUs on a node above 63", topology.Options{Policy: topology.BestEffort},
			[]machine.Node{{ID: 64, CPUs: cpuset.New(1)}},
			"topologyManagerPolicy best-effort: NUMA node 64 has CPUs, but only ids up to 63 are " +
				"supported; next: use " +
				"policy none"},
		{"no distances", topology.Options{Policy: topology.BestEffort, PreferClosest: true}, unknown,
			"topologyManagerPolicyOptions: prefer-closest-numa-nodes needs the distances of NUMA node 1, which the " +
				"machine does not report"},
		{"no such policy", topology.Options{Policy: "strict"}, topologytest.UpTo(1),
			`unknown topologyManagerPolicy "strict"; next: use none, best-effort, restricted or single-numa-node`},
		{"no such scope", topology.Options{Policy: topology.Restricted, Scope: "node"}, topologytest.UpTo(1),
			`unknown topologyManagerScope "node"; next: use container or pod`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := ""
			if err := topology.Check(test.options, test.nodes); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
