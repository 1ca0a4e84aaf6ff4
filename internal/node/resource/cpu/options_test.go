package cpu

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/node/machine"
	"github.com/berth-run/berth/internal/node/resource/topology"
)

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestParseOptions(t *testing.T) {
	type answer struct {
		Options Options
		Error   string
	}
	tests := []struct {
		name   string
		values map[string]string
		want   answer
	}{
		{"none", nil, answer{}},
		{"all", map[string]string{"full-pcpus-only": "true", "strict-cpu-reservation": "true",
			"distribute-cpus-across-numa":  "true",
			"distribute-cpus-across-cores": "true", "align-by-socket": "true",
			"prefer-align-cpus-by-uncorecache": "true"},
			answer{Options: Options{true, true, true, true, true, true}}},
		{"off", map[string]string{"full-pcpus-only": "false"}, answer{}},
		{"unknown", map[string]string{"faster": "true"},
			answer{Error: `cpuManagerPolicyOptions: unknown option "faster"`}},
		{"not a boolean", map[string]string{"align-by-socket": "maybe"},
			answer{Error: `cpuManagerPolicyOptions: parse align-by-socket: "maybe" is neither true nor false`}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			o, err := ParseOptions(test.values)
			if diff := cmp.Diff(test.want, answer{o, message(err)}); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestCheck(t *testing.T) {
	manySockets := build(4, 1, 1, 2, 1)
	for i := range manySockets.CPUs {
		manySockets.CPUs[i].Node /= 2
	}
	tests := []struct {
		name    string
		options Options
		policy  topology.Policy
		machine machine.Machine
		want    string
	}{
		{"nothing set", Options{}, topology.SingleNUMANode, manySockets, ""},
		{"together",
			Options{FullPCPUsOnly: true, StrictReservation: true, DistributeAcrossNUMA: true, AlignBySocket: true},
			topology.Restricted, build(1, 2, 1, 2, 2), ""},
		{"cores and whole cores", Options{FullPCPUsOnly: true, DistributeAcrossCores: true}, topology.None, manySockets,
			"cpuManagerPolicyOptions: full-pcpus-only and distribute-cpus-across-cores cannot be used together: " +
				"leave one out"},
		{"cores and nodes", Options{DistributeAcrossNUMA: true, DistributeAcrossCores: true}, topology.None,
			manySockets,
			"cpuManagerPolicyOptions: distribute-cpus-across-numa and distribute-cpus-across-cores cannot be used " +
				"together: leave one out"},
		{"cores and caches", Options{PreferAlignByUncoreCache: true, DistributeAcrossCores: true}, topology.None,
			manySockets,
			"cpuManagerPolicyOptions: prefer-align-cpus-by-uncorecache and distribute-cpus-across-cores cannot be " +
				"used together: leave one out"},
		{"nodes and caches", Options{PreferAlignByUncoreCache: true, DistributeAcrossNUMA: true}, topology.None,
			manySockets,
			"cpuManagerPolicyOptions: prefer-align-cpus-by-uncorecache and distribute-cpus-across-numa cannot be " +
				"used together: leave one out"},
		{"a socket and one node", Options{AlignBySocket: true}, topology.SingleNUMANode, build(1, 2, 1, 2, 2),
			"cpuManagerPolicyOptions: align-by-socket cannot be used with topologyManagerPolicy single-numa-node: " +
				"leave one out"},
		{"sockets smaller than nodes", Options{AlignBySocket: true}, topology.Restricted, manySockets,
			"cpuManagerPolicyOptions: align-by-socket cannot be used on a machine with more sockets (4) than " +
				"NUMA nodes (2)"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, message(Check(test.options, test.policy, test.machine))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestReserve(t *testing.T) {
	type answer struct{ CPUs, Error string }
	m := build(2, 1, 1, 4, 2)
	tests := []struct {
		name     string
		options  Options
		milli    int64
		explicit cpuset.CPUSet
		want     answer
	}{
		{"a fraction is rounded up", Options{}, 100, cpuset.New(), answer{CPUs: "0"}},
		{"the lowest core", Options{}, 1001, cpuset.New(), answer{CPUs: "0,8"}},
		{"a core and a half", Options{FullPCPUsOnly: true}, 3000, cpuset.New(), answer{CPUs: "0-1,8"}},
		{"across cores", Options{DistributeAcrossCores: true}, 2000, cpuset.New(), answer{CPUs: "0-1"}},
		{"across nodes", Options{DistributeAcrossNUMA: true}, 10000, cpuset.New(), answer{CPUs: "0-2,4-6,8-9,12-13"}},
		{"named", Options{}, 5000, cpuset.New(3, 11), answer{CPUs: "3,11"}},
		{"named, not online", Options{}, 0, cpuset.New(3, 99),
			answer{
				Error: "reserve CPUs: reservedSystemCPUs names 99, which are not online: the online " +
					"CPUs are 0-15"}},
		{"nothing", Options{}, 0, cpuset.New(),
			answer{
				Error: "reserve CPUs: cpuManagerPolicy static needs a CPU that is never allocated; next: set cpu in " +
					"systemReserved or kubeReserved, or reservedSystemCPUs"}},
		{"more than there are", Options{}, 16001, cpuset.New(),
			answer{Error: "reserve CPUs: systemReserved and kubeReserved are 17 CPUs together, the machine has 16"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			cpus, err := Reserve(m, test.options, test.milli, test.explicit)
			if diff := cmp.Diff(test.want, answer{cpus.String(), message(err)}); diff != "" {
				t.Error(diff)
			}
		})
	}
}
