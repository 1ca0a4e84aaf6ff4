package cpu

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/berth-run/berth/internal/node/machine"
	"github.com/berth-run/berth/internal/node/resource/topology"
)

// Names of the options in cpuManagerPolicyOptions of a KubeletConfiguration.
const (
	FullPCPUsOnly            = "full-pcpus-only"
	StrictReservation        = "strict-cpu-reservation"
	DistributeAcrossNUMA     = "distribute-cpus-across-numa"
	DistributeAcrossCores    = "distribute-cpus-across-cores"
	AlignBySocket            = "align-by-socket"
	PreferAlignByUncoreCache = "prefer-align-cpus-by-uncorecache"
)

// Options modify the static policy. All are off by default.
type Options struct {
	// FullPCPUsOnly allocates whole physical cores or rejects the pod (KEP-2625).
	FullPCPUsOnly bool
	// StrictReservation also keeps containers without exclusive CPUs off the reserved CPUs (KEP-4540).
	StrictReservation bool
	// DistributeAcrossNUMA takes CPUs evenly from several NUMA nodes if one is not enough (KEP-2902).
	DistributeAcrossNUMA bool
	// DistributeAcrossCores uses as many physical cores as possible (KEP-4176).
	DistributeAcrossCores bool
	// AlignBySocket treats all NUMA nodes of a socket as equally close (KEP-3327).
	AlignBySocket bool
	// PreferAlignByUncoreCache uses as few last-level caches as possible (KEP-4800).
	PreferAlignByUncoreCache bool
}

// ParseOptions parses cpuManagerPolicyOptions.
func ParseOptions(values map[string]string) (Options, error) {
	var o Options
	fields := map[string]*bool{
		FullPCPUsOnly: &o.FullPCPUsOnly, StrictReservation: &o.StrictReservation,
		DistributeAcrossNUMA: &o.DistributeAcrossNUMA, DistributeAcrossCores: &o.DistributeAcrossCores,
		AlignBySocket: &o.AlignBySocket, PreferAlignByUncoreCache: &o.PreferAlignByUncoreCache,
	}
	for name, value := range values {
		field, known := fields[name]
		if !known {
			return Options{}, fmt.Errorf("cpuManagerPolicyOptions: unknown option %q", name)
		}
		on, err := strconv.ParseBool(value)
		if err != nil {
			return Options{}, fmt.Errorf("cpuManagerPolicyOptions: parse %s: %q is neither true nor false", name, value)
		}
		*field = on
	}
	return o, nil
}

// Check returns an error if these options conflict with each other, with the topology policy or with the machine. The
// rules are the kubelet's.
func Check(o Options, policy topology.Policy, m machine.Machine) error {
	conflicts := []struct {
		both         bool
		first, other string
	}{
		{o.FullPCPUsOnly && o.DistributeAcrossCores, FullPCPUsOnly, DistributeAcrossCores},
		{o.DistributeAcrossNUMA && o.DistributeAcrossCores, DistributeAcrossNUMA, DistributeAcrossCores},
		{o.PreferAlignByUncoreCache && o.DistributeAcrossCores, PreferAlignByUncoreCache, DistributeAcrossCores},
		{o.PreferAlignByUncoreCache && o.DistributeAcrossNUMA, PreferAlignByUncoreCache, DistributeAcrossNUMA},
	}
	if i := slices.IndexFunc(conflicts, func(c struct {
		both         bool
		first, other string
	}) bool {
		return c.both
	}); i >= 0 {
		return fmt.Errorf("cpuManagerPolicyOptions: %s and %s cannot be used together: leave one out",
			conflicts[i].first, conflicts[i].other)
	}
	if !o.AlignBySocket {
		return nil
	}
	if policy == topology.SingleNUMANode {
		return fmt.Errorf("cpuManagerPolicyOptions: %s cannot be used with topologyManagerPolicy %s: leave one out",
			AlignBySocket, policy)
	}
	if l := newLayout(m); len(l.groups[socket]) > len(l.groups[node]) {
		return fmt.Errorf(
			"cpuManagerPolicyOptions: %s cannot be used on a machine with more sockets (%d) than NUMA nodes (%d)",
			AlignBySocket, len(l.groups[socket]), len(l.groups[node]))
	}
	return nil
}
