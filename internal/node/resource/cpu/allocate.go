package cpu

import (
	"math/bits"
	"slices"

	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/node/resource/topology"
)

// Reasons of a pod that is not admitted, as the kubelet spells them.
const (
	SMTAlignmentError        = "SMTAlignmentError"
	UnexpectedAdmissionError = "UnexpectedAdmissionError"
	EmptyPodSharedPoolError  = "EmptyPodSharedPoolError"
)

// Allocate chooses n CPUs of those that are free or reusable (held by init
// containers of the same pod that will have ended): first of the given nodes, or
// with align-by-socket of their sockets, then of any. Nodes 0: of any. The error
// has reason SMTAlignmentError if full-pcpus-only forbids it, else
// UnexpectedAdmissionError.
func Allocate(p Pool, n int, reusable cpuset.CPUSet, on topology.Nodes) (cpuset.CPUSet, error) {
	l := newLayout(p.Machine)
	available := l.available(p, reusable)
	if p.Options.FullPCPUsOnly {
		if err := aligned(l, available, n); err != nil {
			return cpuset.New(), err
		}
	}
	taken, err := l.takeNear(l.rules(p.Options), available, n, on)
	if err != nil && p.Options.FullPCPUsOnly {
		// Cores of different sizes: those near do not add up, all together may.
		taken, err = l.take(l.rules(p.Options), available, n)
		if err != nil {
			return cpuset.New(), notEnoughCores(l, available, n)
		}
	}
	if err != nil {
		return cpuset.New(), reason.New(UnexpectedAdmissionError, "Allocate failed due to %w, which is unexpected", err)
	}
	return l.set(taken), nil
}

// aligned checks that n CPUs can be whole cores. Other than the kubelet it counts
// what is reusable as there, and a core of which a part is held as not.
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

// takeNear takes from the nodes first. Distributed CPUs come from as many nodes as
// were chosen, since what is near to each of these may be the reason (kubernetes
// 139430; as from v1.37).
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
	taken, err := l.take(wide, near, min(n, there))
	if err != nil || len(taken) == n {
		return taken, err
	}
	rest := slices.Clone(available)
	for _, cpu := range taken {
		rest[cpu] = false
	}
	more, err := l.take(r, rest, n-len(taken))
	return append(taken, more...), err
}

// inWholeCores is the number of these CPUs whose cores are all among them.
func (l *layout) inWholeCores(cpus []bool) int {
	n := 0
	for _, g := range l.groups[core] {
		if !slices.ContainsFunc(g.cpus, func(cpu int) bool { return !cpus[cpu] }) {
			n += len(g.cpus)
		}
	}
	return n
}

// near are the CPUs of these nodes, or of the sockets that these nodes are in.
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

// Hints are all sets of NUMA nodes that have n CPUs free or reusable (with
// full-pcpus-only, in whole cores) and hold those reusable; preferred are those of as few nodes as would do if every CPU
// were free, and with align-by-socket those of as few sockets. Nil if n is 0, so
// that no node is preferred; empty if n CPUs are not to be had. There are up to
// 2^n of them for n nodes: topology.Check bounds that.
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

// nodeSet is a set of NUMA nodes with what it has.
type nodeSet struct {
	nodes     topology.Nodes
	all, free int    // CPUs
	sockets   uint64 // by place
}

// nodeSets are the nodes that have CPUs, each as a set, and those that have CPUs
// to be used again.
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

// eachSet visits the sets that have s and any of the first i+1 nodes, but not the
// empty one.
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
