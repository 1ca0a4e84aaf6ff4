package cpu

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/node/machine"
	"github.com/berth-run/berth/internal/node/machine/machinetest"
	"github.com/berth-run/berth/internal/node/resource/topology"
)

// allOptions lists all valid combinations of options. strict-cpu-reservation does not change the choice of CPUs, so it
// appears only alone.
func allOptions(m machine.Machine) []Options {
	var all []Options
	for bits := range 1 << 6 {
		on := func(i int) bool { return bits&(1<<i) != 0 }
		o := Options{FullPCPUsOnly: on(0), StrictReservation: on(1), DistributeAcrossNUMA: on(2),
			DistributeAcrossCores: on(3), AlignBySocket: on(4), PreferAlignByUncoreCache: on(5)}
		if o.StrictReservation && o != (Options{StrictReservation: true}) {
			continue
		}
		if Check(o, topology.BestEffort, m) == nil {
			all = append(all, o)
		}
	}
	return all
}

func onEachMachine(t *testing.T, try func(t *testing.T, m machine.Machine, o Options)) {
	machines := machinetest.All(t)
	for _, name := range slices.Sorted(maps.Keys(machines)) {
		for _, o := range allOptions(machines[name]) {
			t.Run(fmt.Sprintf("%s/%+v", name, o), func(t *testing.T) { try(t, machines[name], o) })
		}
	}
}

func reserve(t *testing.T, m machine.Machine, o Options, n int) Pool {
	t.Helper()
	reserved, err := Reserve(m, o, int64(n)*1000, cpuset.New())
	if err != nil {
		t.Fatal(err)
	}
	return Pool{Machine: m, Reserved: reserved, Options: o}
}

// A node allocates and releases CPUs at random.
func TestAllocateAndRelease(t *testing.T) {
	onEachMachine(t, func(t *testing.T, m machine.Machine, o Options) {
		random := rand.New(rand.NewPCG(1, uint64(len(m.CPUs))))
		p := reserve(t, m, o, 1)
		var given []cpuset.CPUSet
		for range 25 {
			if len(given) > 0 && random.IntN(3) == 0 {
				i := random.IntN(len(given))
				before := p.Free()
				p.Held = p.Held.Difference(given[i])
				if !p.Free().Equals(before.Union(given[i])) {
					t.Fatalf("after the release of %s the free CPUs are %s, before they were %s", given[i], p.Free(),
						before)
				}
				given = slices.Delete(given, i, i+1)
				continue
			}
			n, on := 1+random.IntN(max(1, len(m.CPUs)/4)), someNodes(random, m)
			cpus, err := Allocate(p, n, cpuset.New(), on)
			again, _ := Allocate(p, n, cpuset.New(), on)
			if !cpus.Equals(again) {
				t.Fatalf("two requests for %d CPUs got %s, then %s", n, cpus, again)
			}
			if err != nil {
				refused(t, p, n, err)
				continue
			}
			fits(t, p, n, on, cpus)
			given, p.Held = append(given, cpus), p.Held.Union(cpus)
		}
	})
}

func someNodes(random *rand.Rand, m machine.Machine) topology.Nodes {
	var on topology.Nodes
	for _, n := range m.Nodes {
		if random.IntN(2) == 0 {
			on |= topology.Of(n.ID)
		}
	}
	return on
}

// refused fails the test if the request could have been served.
func refused(t *testing.T, p Pool, n int, err error) {
	t.Helper()
	if !p.Options.FullPCPUsOnly {
		if reason.Of(err) != UnexpectedAdmissionError || n <= p.Free().Size() {
			t.Fatalf("%d CPUs of %s: %v", n, p.Free(), err)
		}
		return
	}
	sizes := map[int]bool{0: true}
	for _, core := range p.Machine.ByCore() {
		if core.IsSubsetOf(p.Free()) {
			for _, sum := range slices.Collect(maps.Keys(sizes)) {
				sizes[sum+core.Size()] = true
			}
		}
	}
	if reason.Of(err) != SMTAlignmentError || sizes[n] {
		t.Fatalf("%d CPUs of the whole cores in %s: %v", n, p.Free(), err)
	}
}

// fits fails the test if these are not n CPUs that may be allocated.
func fits(t *testing.T, p Pool, n int, on topology.Nodes, cpus cpuset.CPUSet) {
	t.Helper()
	if cpus.Size() != n || !cpus.IsSubsetOf(p.Free()) {
		t.Fatalf("a request for %d CPUs of %s got %s", n, p.Free(), cpus)
	}
	near := nearTo(p.Machine, p.Options, on)
	if there := near.Intersection(p.Free()).Size(); !p.Options.FullPCPUsOnly &&
		near.Intersection(cpus).Size() != min(n, there) {
		t.Fatalf("a request for %d CPUs got %s although %d are free on %v", n, cpus, there, on.IDs())
	}
	for id, core := range p.Machine.ByCore() {
		if part := core.Intersection(cpus); p.Options.FullPCPUsOnly && !part.IsEmpty() && !part.Equals(core) {
			t.Fatalf("core %d has the CPUs %s, and only %s were allocated", id, core, part)
		}
	}
}

// nearTo are the CPUs that should serve a request on these nodes.
func nearTo(m machine.Machine, o Options, on topology.Nodes) cpuset.CPUSet {
	var near cpuset.CPUSet
	for id, node := range m.ByNode() {
		if on.Has(id) {
			near = near.Union(node)
		}
	}
	if !o.AlignBySocket {
		return near
	}
	for _, socket := range m.BySocket() {
		if !socket.Intersection(near).IsEmpty() {
			near = near.Union(socket)
		}
	}
	return near
}

// Shared CPUs are all CPUs that are not held, with or without the reserved ones.
func TestShared(t *testing.T) {
	onEachMachine(t, func(t *testing.T, m machine.Machine, o Options) {
		p := reserve(t, m, o, 1)
		p.Held, _ = Allocate(p, len(m.CPUs)/2, cpuset.New(), 0)
		want := m.Online().Difference(p.Held)
		if o.StrictReservation {
			want = want.Difference(p.Reserved)
		}
		if !p.Shared().Equals(want) {
			t.Errorf("shared CPUs are %s, want %s", p.Shared(), want)
		}
	})
}

// Distributed CPUs are even: among wholly free nodes, no node gives more than one portion above another.
func TestDistributedEvenly(t *testing.T) {
	onEachMachine(t, func(t *testing.T, m machine.Machine, o Options) {
		if !o.DistributeAcrossNUMA {
			return
		}
		l := newLayout(m)
		for n := l.rules(o).portion; n <= len(m.CPUs); n += l.rules(o).portion {
			cpus, err := Allocate(Pool{Machine: m, Options: o}, n, cpuset.New(), 0)
			if err != nil {
				t.Fatal(err)
			}
			var parts []int
			for _, node := range m.ByNode() {
				if part := node.Intersection(cpus).Size(); part > 0 {
					parts = append(parts, part)
				}
			}
			if slices.Max(parts)-slices.Min(parts) > l.rules(o).portion && slices.Min(parts) < l.smallest(node) {
				t.Errorf("%d CPUs are distributed over the nodes as %v", n, parts)
			}
		}
	})
}

// A request that a single cache can serve comes from one cache.
func TestOneCache(t *testing.T) {
	onEachMachine(t, func(t *testing.T, m machine.Machine, o Options) {
		l := newLayout(m)
		if !o.PreferAlignByUncoreCache || l.smallest(core) != l.perCore {
			return
		}
		for n := 1; n <= l.smallest(cache); n++ {
			cpus, err := Allocate(Pool{Machine: m, Options: o}, n, cpuset.New(), 0)
			if err != nil {
				continue // not a multiple of whole cores
			}
			caches := 0
			for _, c := range m.ByCache() {
				if !c.Intersection(cpus).IsEmpty() {
					caches++
				}
			}
			if caches > 1 {
				t.Errorf("a request for %d CPUs got %s from %d caches", n, cpus, caches)
			}
		}
	})
}

func (l *layout) smallest(k kind) int {
	least := len(l.cpus)
	for _, g := range l.groups[k] {
		least = min(least, len(g.cpus))
	}
	return least
}

// Hints match their definition set by set, and each hint can be served.
func TestHints(t *testing.T) {
	onEachMachine(t, func(t *testing.T, m machine.Machine, o Options) {
		if topology.Check(topology.Options{Policy: topology.BestEffort}, m.Nodes) != nil || o.StrictReservation {
			return // there are no hints, or the option does not change them
		}
		random := rand.New(rand.NewPCG(2, uint64(len(m.CPUs))))
		p := reserve(t, m, o, 1)
		for range 3 {
			p.Held = cpuset.New()
			for _, core := range m.ByCore() {
				if random.IntN(3) == 0 {
					p.Held = p.Held.Union(core.Difference(p.Reserved))
				}
			}
			n := newLayout(m).perCore * (1 + random.IntN(max(1, len(m.CPUs)/8)))
			got := map[topology.Nodes]bool{}
			for _, h := range Hints(p, n, cpuset.New()) {
				got[h.Nodes] = h.Preferred
			}
			if diff := cmp.Diff(hintsOf(p, n), got); diff != "" {
				t.Fatalf("hints for %d CPUs of %s (-want +got): %s", n, p.Free(), diff)
			}
			for _, on := range slices.Sorted(maps.Keys(got))[:min(len(got), 10)] {
				cpus, err := Allocate(p, n, cpuset.New(), on)
				if near := nearTo(m, o, on); !regular(m) || err == nil && cpus.IsSubsetOf(near) {
					continue
				}
				t.Fatalf("a request for %d CPUs on %v got %s: %v", n, on.IDs(), cpus, err)
			}
		}
	})
}

func regular(m machine.Machine) bool {
	l := newLayout(m)
	return l.perCore == m.ThreadsPerCore()
}

// hintsOf computes Hints from their documentation.
func hintsOf(p Pool, n int) map[topology.Nodes]bool {
	var free cpuset.CPUSet
	for _, core := range p.Machine.ByCore() {
		if part := core.Intersection(p.Free()); !p.Options.FullPCPUsOnly || part.Equals(core) {
			free = free.Union(part)
		}
	}
	nodes := p.Machine.ByNode()
	ids := slices.Sorted(maps.Keys(nodes))
	hints, least, sockets := map[topology.Nodes]bool{}, len(ids), map[topology.Nodes]int{}
	for x := 1; x < 1<<len(ids); x++ {
		var on topology.Nodes
		all, have, of := 0, 0, map[int]bool{}
		for i, id := range ids {
			if x&(1<<i) != 0 {
				on, all, have = on|topology.Of(id), all+nodes[id].Size(), have+nodes[id].Intersection(free).Size()
				for _, cpu := range nodes[id].UnsortedList() {
					c, _ := p.Machine.CPU(cpu)
					of[c.Socket] = true
				}
			}
		}
		if all >= n {
			least = min(least, on.Len())
		}
		if have >= n {
			hints[on], sockets[on] = false, len(of)
		}
	}
	perSocket := len(ids) / len(p.Machine.BySocket())
	for on := range hints {
		hints[on] = on.Len() == least || p.Options.AlignBySocket && sockets[on] == (least+perSocket-1)/perSocket
	}
	return hints
}

// Containers that run at the same time never share an exclusive CPU, in one pod or in several.
func TestContainersOfAPod(t *testing.T) {
	onEachMachine(t, func(t *testing.T, m machine.Machine, o Options) {
		random := rand.New(rand.NewPCG(3, uint64(len(m.CPUs))))
		for range 4 {
			pool, p := reserve(t, m, o, 1), randomPod(random, len(m.CPUs))
			reusable, staying := cpuset.New(), cpuset.New()
			for _, c := range pod.Containers(p) {
				cpus, err := Allocate(pool, Exclusive(p, c.Container), reusable, 0)
				if err != nil {
					break // the next pod may be rejected just as well
				}
				if !cpus.Intersection(staying.Union(pool.Reserved)).IsEmpty() {
					t.Fatalf("%s %s got %s, held are %s", c.Kind, c.Name, cpus, staying)
				}
				if c.Kind != pod.Init {
					staying = staying.Union(cpus)
				}
				pool.Held, reusable = pool.Held.Union(cpus), Reusable(reusable, c, cpus)
			}
		}
	})
}

// The CPUs of a pod are divided among its containers completely.
func TestBubblesAreDivided(t *testing.T) {
	onEachMachine(t, func(t *testing.T, m machine.Machine, o Options) {
		random := rand.New(rand.NewPCG(4, uint64(len(m.CPUs))))
		for range 4 {
			pool, p := reserve(t, m, o, 1), randomPod(random, len(m.CPUs)/2)
			n := ExclusivePod(p) + 1 + random.IntN(2)
			b, err := AllocateBubble(pool, wholePod(fmt.Sprint(n), p), 0)
			if err != nil {
				continue
			}
			left := b.CPUs
			for _, c := range pod.Containers(p) {
				cpus := b.Containers[c.Name]
				switch {
				case c.Kind == pod.Init && !cpus.IsSubsetOf(left),
					b.Exclusive[c.Name] && (cpus.Size() != Exclusive(p, c.Container) || !cpus.IsSubsetOf(left)):
					t.Fatalf("%s %s got %s of %s", c.Kind, c.Name, cpus, left)
				case c.Kind != pod.Init && !b.Exclusive[c.Name] && !cpus.Equals(b.Shared):
					t.Fatalf("%s %s shares %s, want %s", c.Kind, c.Name, cpus, b.Shared)
				case c.Kind != pod.Init && b.Exclusive[c.Name]:
					left = left.Difference(cpus)
				}
			}
			if b.CPUs.Size() != n || !b.CPUs.IsSubsetOf(pool.Free()) || !left.Equals(b.Shared) {
				t.Fatalf("of the %d CPUs %s the CPUs %s are left, but %s are shared", n, b.CPUs, left, b.Shared)
			}
		}
	})
}

func randomPod(random *rand.Rand, most int) *corev1.Pod {
	var init, apps []corev1.Container
	for i := range 6 {
		c := container(fmt.Sprintf("c%d", i), fmt.Sprint(1+random.IntN(max(1, most/4))))
		switch random.IntN(4) {
		case 0:
			init = append(init, c)
		case 1:
			init = append(init, sidecar(c))
		default:
			apps = append(apps, c)
		}
	}
	return podOf(init, apps...)
}
