package topology

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/machine"
)

func TestCheck(t *testing.T) {
	unknown := upTo(2)
	unknown[1].Distances = nil
	accelerators := append(upTo(2), nodes(248, 249, 250, 251, 252, 253, 254, 255)...)
	tests := []struct {
		name    string
		options Options
		nodes   []machine.Node
		want    string
	}{
		{"none decides nothing", Options{Policy: None, MaxNodes: 1}, upTo(64), ""},
		{"as many as by default", Options{Policy: Restricted}, upTo(8), ""},
		{"more than by default", Options{Policy: Restricted}, upTo(9), "topologyManagerPolicy restricted: the machine has 9 NUMA nodes and max-allowable-numa-nodes is 8: raise it to 9"},
		{"raised", Options{Policy: Restricted, Scope: ScopePod, MaxNodes: 16}, upTo(16), ""},
		{"raised beyond reason", Options{Policy: Restricted, MaxNodes: 64}, upTo(32), "topologyManagerPolicy restricted: the machine has 32 NUMA nodes, more than the 20 that can be decided for: use policy none"},
		{"lowered", Options{Policy: BestEffort, MaxNodes: 4}, upTo(2), "topologyManagerPolicyOptions: max-allowable-numa-nodes is 4, the least is 8"},
		{"accelerators' memory", Options{Policy: BestEffort, PreferClosest: true}, accelerators, ""},
		{"CPUs on a node above 63", Options{Policy: BestEffort}, []machine.Node{{ID: 64, CPUs: cpuset.New(1)}}, "topologyManagerPolicy best-effort: NUMA node 64 has CPUs, ids above 63 cannot be decided for: use policy none"},
		{"no distances", Options{Policy: BestEffort, PreferClosest: true}, unknown, "topologyManagerPolicyOptions: prefer-closest-numa-nodes needs the distances of NUMA node 1, which the machine does not tell"},
		{"no such policy", Options{Policy: "strict"}, upTo(1), `topologyManagerPolicy "strict" is not known: use none, best-effort, restricted or single-numa-node`},
		{"no such scope", Options{Policy: Restricted, Scope: "node"}, upTo(1), `topologyManagerScope "node" is not known: use container or pod`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := ""
			if err := Check(test.options, test.nodes); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
