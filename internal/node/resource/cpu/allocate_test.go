package cpu

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/node/machine"
	"github.com/berth-run/berth/internal/node/resource/cpu/cputest"
	"github.com/berth-run/berth/internal/node/resource/topology"
)

func build(sockets, nodesPerSocket, cachesPerNode, coresPerCache, threads int) machine.Machine {
	return cputest.Shape{Sockets: sockets, NodesPerSocket: nodesPerSocket, CachesPerNode: cachesPerNode,
		CoresPerCache: coresPerCache, Threads: threads}.Machine()
}

func parse(t *testing.T, list string) cpuset.CPUSet {
	t.Helper()
	s, err := cpuset.Parse(list)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAllocate(t *testing.T) {
	type answer struct{ CPUs, Reason, Message string }
	var (
		small = build(2, 1, 1, 4, 2) // 16 CPUs: nodes 0-3,8-11 and 4-7,12-15
		zen   = build(1, 1, 4, 2, 2) // 16 CPUs: caches 0-1,8-9 2-3,10-11 4-5,12-13 6-7,14-15
		snc   = build(2, 2, 1, 2, 2) // 16 CPUs: nodes 0-1,8-9 2-3,10-11 | 4-5,12-13 6-7,14-15
	)
	tests := []struct {
		name     string
		machine  machine.Machine
		options  Options
		reserved string
		held     string
		n        int
		reusable string
		on       topology.Nodes
		want     answer
	}{
		{"a whole node", small, Options{}, "0,8", "", 8, "", 0, answer{CPUs: "4-7,12-15"}},
		{"whole cores", small, Options{}, "0,8", "", 4, "", 0, answer{CPUs: "1-2,9-10"}},
		{"the other thread of a core in use", small, Options{}, "0", "", 1, "", 0, answer{CPUs: "8"}},
		{"a core and a thread", small, Options{}, "0", "", 3, "", 0, answer{CPUs: "1,8-9"}},
		{"on the wanted node", small, Options{}, "0,8", "", 2, "", topology.Of(1), answer{CPUs: "4,12"}},
		{"more than the wanted node has", small, Options{}, "0,8", "", 8, "", topology.Of(0),
			answer{CPUs: "1-4,9-12"}},
		{"reusable CPUs", small, Options{}, "0,8", "1-7,9-15", 2, "5,13", 0, answer{CPUs: "5,13"}},
		{"too few", small, Options{}, "0,8", "1-7", 8, "", 0,
			answer{Reason: UnexpectedAdmissionError,
				Message: "Allocate failed due to not enough cpus available to satisfy request: requested=8, " +
					"available=7, which is unexpected"}},
		{"whole cores only", small, Options{FullPCPUsOnly: true}, "0", "", 2, "", 0, answer{CPUs: "1,9"}},
		{"half a core", small, Options{FullPCPUsOnly: true}, "0", "", 3, "", 0,
			answer{Reason: SMTAlignmentError,
				Message: "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2"}},
		{"only halves of cores", small, Options{FullPCPUsOnly: true}, "0", "1-5,9-13", 6, "", 0,
			answer{Reason: SMTAlignmentError,
				Message: "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 4, requested " +
					"CPUs = 6, CPUs per core = 2"}},
		{"a reusable core", small, Options{FullPCPUsOnly: true}, "0", "1-7,9-15", 2, "1,9", 0,
			answer{CPUs: "1,9"}},
		{"across cores", small, Options{DistributeAcrossCores: true}, "0,8", "", 3, "", 0, answer{CPUs: "1-3"}},
		{"across nodes", small, Options{DistributeAcrossNUMA: true}, "0,8", "", 10, "", 0,
			answer{CPUs: "1-6,9-10,12-13"}},
		{"one node is enough", small, Options{DistributeAcrossNUMA: true}, "0,8", "", 6, "", 0,
			answer{CPUs: "4-6,12-14"}},
		{"whole cores across nodes", small, Options{DistributeAcrossNUMA: true, FullPCPUsOnly: true}, "0,8", "", 10, "",
			0, answer{CPUs: "1-2,4-6,9-10,12-14"}},
		{"a whole cache", zen, Options{PreferAlignByUncoreCache: true}, "0,8", "", 4, "", 0, answer{CPUs: "2-3,10-11"}},
		{"without preference for caches", zen, Options{}, "0,8", "", 4, "", 0, answer{CPUs: "1-2,9-10"}},
		{"part of a cache", zen, Options{PreferAlignByUncoreCache: true}, "0,8", "", 2, "", 0, answer{CPUs: "1,9"}},
		{"a cache and a part", zen, Options{PreferAlignByUncoreCache: true}, "0,8", "", 6, "", 0,
			answer{CPUs: "1-3,9-11"}},
		{"the socket of the node", snc, Options{AlignBySocket: true}, "0,8", "", 6, "", topology.Of(2),
			answer{CPUs: "4-6,12-14"}},
		{"the node alone", snc, Options{}, "0,8", "", 6, "", topology.Of(2), answer{CPUs: "4-6,12-14"}},
		{"a whole socket", snc, Options{}, "0,8", "", 8, "", 0, answer{CPUs: "4-7,12-15"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := Pool{Machine: test.machine, Reserved: parse(t, test.reserved), Held: parse(t, test.held),
				Options: test.options}
			cpus, err := Allocate(p, test.n, parse(t, test.reusable), test.on)
			if diff := cmp.Diff(test.want, answer{cpus.String(), reason.Of(err), reason.Message(err)}); diff != "" {
				t.Error(diff)
			}
		})
	}
}
