package cpu

import (
	"math/bits"
	"slices"

	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/node/resource/topology"
)

// Reasons for rejecting a pod, as the kubelet spells them.
const (
	SMTAlignmentError        = "SMTAlignmentError"
	UnexpectedAdmissionError = "UnexpectedAdmissionError"
	EmptyPodSharedPoolError  = "EmptyPodSharedPoolError"
)

// Allocate chooses n CPUs that are free or reusable (held by init containers of the same pod that have ended by then).
// It prefers the given nodes, or their sockets with align-by-socket, and takes the rest from any node. With on == 0 all
// nodes are equal. The reason of the error is SMTAlignmentError if full-pcpus-only forbids the allocation, otherwise
// UnexpectedAdmissionError.
func Allocate(p Pool, n int, reusable cpuset.CPUSet, on topology.Nodes) (cpuset.CPUSet, error) {
	l := newLayout(p.Machine)
	available := l.available(p, reusable)
	if p.Options.FullPCPUsOnly {
		if err := aligned(l, available, n); err != nil {
			return cpuset.New(), err
		}
	}
	chosen, err := l.takeNear(l.rules(p.Options), available, n, on)
	if err != nil && p.Options.FullPCPUsOnly {
		// Cores have different sizes: the close ones do not add up to n, but all cores together may.
		chosen, err = l.take(l.rules(p.Options), available, n)
		if err != nil {
			return cpuset.New(), notEnoughCores(l, available, n)
		}
	}
	if err != nil {
		return cpuset.New(), reason.New(UnexpectedAdmissionError, "Allocate failed due to %w, which is unexpected", err)
	}
	return l.set(chosen), nil
}

// aligned checks that n CPUs can be whole cores. Unlike the kubelet it counts reusable CPUs as available, and a partly
// held core as unavailable.
func aligned(l *layout, available []bool, n int) error {
	if l.perCore > 0 && n%l.perCore != 0 {
		return reason.New(SMTAlignmentError, "SMT Alignment Error: requested %d cpus not multiple cpus per core = %d",
			n, l.perCore)
	}
	if n > l.inWholeCores(available) {
		return notEnoughCores(l, available, n)
	}
	return nil
}

func notEnoughCores(l *layout, available []bool, n int) error {
	return reason.New(SMTAlignmentError,
		"SMT Alignment Error: not enough free physical CPUs: available physical CPUs = %d, requested CPUs = %d, CPUs "+
			"per core = %d",
		l.inWholeCores(available), n, l.perCore)
}

// takeNear prefers CPUs of the given nodes. Distributed CPUs come from as many nodes as the hint has, because another
// resource may need each of these nodes (kubernetes 139430, since v1.37).
func (l *layout) takeNear(r rules, available []bool, n int, on topology.Nodes) ([]int, error) {
	near := l.near(on, r.AlignBySocket)
	there := 0
	for cpu, free := range available {
		near[cpu] = near[cpu] && free
		if near[cpu] {
			there++
		}
	}
	if r.FullPCPUsOnly {
		there = l.inWholeCores(near)
	}
	wide := r
	wide.nodes = on.Len()
	chosen, err := l.take(wide, near, min(n, there))
	if err != nil || len(chosen) == n {
		return chosen, err
	}
	rest := slices.Clone(available)
	for _, cpu := range chosen {
		rest[cpu] = false
	}
	more, err := l.take(r, rest, n-len(chosen))
	return append(chosen, more...), err
}

// inWholeCores counts the given CPUs whose whole core is among them.
func (l *layout) inWholeCores(cpus []bool) int {
	n := 0
	for _, g := range l.groups[core] {
		if !slices.ContainsFunc(g.cpus, func(cpu int) bool { return !cpus[cpu] }) {
			n += len(g.cpus)
		}
	}
	return n
}

// near marks the CPUs of these nodes, or of the sockets that contain these nodes.
func (l *layout) near(on topology.Nodes, bySocket bool) []bool {
	near := make([]bool, len(l.cpus))
	k := node
	if bySocket {
		k = socket
	}
	for cpu, g := range l.of[node] {
		if !on.Has(l.groups[node][g].id) || near[cpu] {
			continue
		}
		for _, together := range l.groups[k][l.of[k][cpu]].cpus {
			near[together] = true
		}
	}
	return near
}

// Hints returns the sets of NUMA nodes that have n CPUs free or reusable (in whole cores with full-pcpus-only) and
// contain all reusable CPUs. A hint is preferred if no smaller set would do with all CPUs free; with align-by-socket,
// also if it spans as few sockets as that. It is nil if n is 0, which means any node. It is empty if n CPUs are not
// available. There are up to 2^n sets for n nodes; topology.Check limits n.
func Hints(p Pool, n int, reusable cpuset.CPUSet) []topology.Hint {
	if n == 0 {
		return nil
	}
	l := newLayout(p.Machine)
	nodes, must := l.nodeSets(p, reusable)
	least, count := len(nodes), 0
	fits := func(s nodeSet) bool { return s.free >= n && s.nodes&must == must }
	eachSet(nodes, len(nodes)-1, nodeSet{}, func(s nodeSet) {
		if s.all >= n {
			least = min(least, s.nodes.Len())
		}
		if fits(s) {
			count++
		}
	})
	perSocket := len(nodes) / max(1, len(l.groups[socket]))
	aligned := func(s nodeSet) bool {
		return p.Options.AlignBySocket && perSocket > 0 && bits.OnesCount64(s.sockets) == (least+perSocket-1)/perSocket
	}
	hints := make([]topology.Hint, 0, count)
	eachSet(nodes, len(nodes)-1, nodeSet{}, func(s nodeSet) {
		if fits(s) {
			hints = append(hints, topology.Hint{Nodes: s.nodes, Preferred: s.nodes.Len() == least || aligned(s)})
		}
	})
	return hints
}

// nodeSet is a set of NUMA nodes with their contents.
type nodeSet struct {
	nodes     topology.Nodes
	all, free int    // numbers of CPUs
	sockets   uint64 // bit mask of places in layout.groups
}

// nodeSets returns one set for each node that has CPUs, and the nodes that have reusable CPUs.
func (l *layout) nodeSets(p Pool, reusable cpuset.CPUSet) ([]nodeSet, topology.Nodes) {
	again := l.places(reusable)
	free := newTaker(l, l.rules(p.Options), l.available(p, reusable), 0)
	var nodes []nodeSet
	var must topology.Nodes
	for g, in := range l.groups[node] {
		s := nodeSet{nodes: topology.Of(in.id), all: len(in.cpus), free: free.takable(g)}
		for _, cpu := range in.cpus {
			s.sockets |= 1 << l.of[socket][cpu]
			if again[cpu] {
				must |= s.nodes
			}
		}
		nodes = append(nodes, s)
	}
	return nodes, must
}

// eachSet visits the unions of s with every subset of the first i+1 nodes, except the empty set.
func eachSet(nodes []nodeSet, i int, s nodeSet, visit func(nodeSet)) {
	switch {
	case i >= 0:
		eachSet(nodes, i-1, s, visit)
		eachSet(nodes, i-1,
			nodeSet{s.nodes | nodes[i].nodes, s.all + nodes[i].all, s.free + nodes[i].free,
				s.sockets | nodes[i].sockets}, visit)
	case s.nodes != 0:
		visit(s)
	}
}
