package memory

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/node/machine"
	"github.com/berth-run/berth/internal/node/machine/machinetest"
	"github.com/berth-run/berth/internal/node/resource/topology"
)

const (
	gi   = int64(1) << 30
	mem  = corev1.ResourceMemory
	huge = corev1.ResourceName("hugepages-1Gi")
)

// four has four nodes of 10 GiB with 1 GiB reserved on each. Node 0 has 4 huge pages.
func four() State {
	m := machine.Machine{}
	r := Reserved{}
	for id := range 4 {
		m.Nodes = append(m.Nodes, machine.Node{ID: id, Memory: 10 * gi})
		r[id] = map[corev1.ResourceName]int64{mem: gi}
	}
	m.Nodes[0].Memory += 4 * gi
	m.Nodes[0].HugePages = map[int64]int64{gi: 4}
	return NewState(m, r)
}

func block(size int64, name corev1.ResourceName, ids ...int) Block {
	return Block{Nodes: topology.Of(ids...), Resource: name, Size: size * gi}
}

func hint(preferred bool, ids ...int) topology.Hint {
	return topology.Hint{Nodes: topology.Of(ids...), Preferred: preferred}
}

func ask(size int64) Request { return Request{Sizes: map[corev1.ResourceName]int64{mem: size * gi}} }

func TestHints(t *testing.T) {
	with := func(blocks ...Block) State { return four().With(blocks) }
	tests := []struct {
		name  string
		state State
		ask   Request
		want  []topology.Hint
	}{
		{"one node", with(), ask(9), []topology.Hint{
			hint(true, 0), hint(true, 1), hint(true, 2), hint(true, 3),
			hint(false, 0, 1), hint(false, 0, 2), hint(false, 1, 2), hint(false, 0, 3), hint(false, 1, 3),
			hint(false, 2, 3),
			hint(false, 0, 1, 2), hint(false, 0, 1, 3), hint(false, 0, 2, 3), hint(false, 1, 2, 3),
			hint(false, 0, 1, 2, 3),
		}},
		{"all nodes", with(), ask(36), []topology.Hint{hint(true, 0, 1, 2, 3)}},
		{"more than the machine has", with(), ask(37), nil},
		{"nodes in use alone cannot form a group", with(block(1, mem, 0), block(1, mem, 1)), ask(9),
			[]topology.Hint{hint(true, 2), hint(true, 3), hint(false, 2, 3)}},
		{"nodes of a group cannot be used alone", with(block(10, mem, 0, 1)), ask(8), []topology.Hint{
			hint(true, 2), hint(true, 3), hint(false, 0, 1), hint(false, 2, 3),
		}},
		{"held memory forces more nodes", with(block(9, mem, 0), block(9, mem, 1)), ask(10),
			[]topology.Hint{hint(true, 2, 3)}},
		{"no hint of the narrowest width", with(block(1, mem, 0), block(1, mem, 1), block(1, mem, 2, 3)), ask(9),
			[]topology.Hint{hint(false, 2, 3)}},
		{"a group with an empty block is still a group", with(block(0, mem, 0, 1, 2)), ask(9),
			[]topology.Hint{hint(true, 3), hint(false, 0, 1, 2)}},
		{"reusable blocks", with(block(9, mem, 0), block(9, mem, 1), block(9, mem, 2), block(9, mem, 3)),
			Request{Sizes: ask(9).Sizes, Reusable: []Block{block(9, mem, 2)}}, []topology.Hint{hint(true, 2)}},
		{"memory and huge pages", with(), Request{Sizes: map[corev1.ResourceName]int64{mem: 10 * gi, huge: gi}},
			[]topology.Hint{
				hint(true, 0, 1), hint(true, 0, 2), hint(true, 0, 3), hint(false, 0, 1, 2), hint(false, 0, 1, 3),
				hint(false, 0, 2, 3), hint(false, 0, 1, 2, 3),
			}},
		{"huge pages that no node has", with(), Request{Sizes: map[corev1.ResourceName]int64{"hugepages-2Mi": gi}},
			nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, tt.state.hints(tt.ask)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for _, w := range Offers(tt.state, tt.ask) {
				if diff := cmp.Diff(tt.want, w.Hints); diff != "" {
					t.Errorf("%s (-want +got):\n%s", w.Resource, diff)
				}
			}
		})
	}
}

func TestAllocate(t *testing.T) {
	with := func(blocks ...Block) State { return four().With(blocks) }
	tests := []struct {
		name  string
		state State
		ask   Request
		on    topology.Hint
		want  []Block
		err   string
	}{
		{name: "no request", state: with(), ask: Request{}},
		{name: "anywhere", state: with(), ask: ask(9), want: []Block{block(9, mem, 0)}},
		{name: "anywhere, the first with enough", state: with(block(1, mem, 0)), ask: ask(9),
			want: []Block{block(9, mem, 1)}},
		{name: "on the hinted node", state: with(), ask: ask(9), on: hint(true, 2), want: []Block{block(9, mem, 2)}},
		{name: "the hint is extended", state: with(), ask: ask(10), on: hint(true, 2),
			want: []Block{block(10, mem, 0, 2)}},
		{name: "part of a group means the whole group", state: with(block(1, mem, 1, 2)), ask: ask(1),
			on:   hint(false, 2),
			want: []Block{block(1, mem, 1, 2)}},
		{
			name: "memory and huge pages", state: with(),
			ask: Request{Sizes: map[corev1.ResourceName]int64{mem: gi, huge: 2 * gi}}, on: hint(true, 0),
			want: []Block{block(2, huge, 0), block(1, mem, 0)},
		},
		{name: "more than the machine has", state: with(), ask: ask(37),
			err: "failed to get the default NUMA affinity, no NUMA nodes with enough memory is available"},
		{name: "no way to extend", state: with(block(9, mem, 0)), ask: ask(9), on: hint(false, 0),
			err: "failed to find NUMA nodes to extend the current topology hint"},
		{
			name:  "the extended hint is not preferred",
			state: with(block(1, mem, 0), block(1, mem, 1), block(1, mem, 2, 3)), ask: ask(9),
			on:  hint(true, 2),
			err: "failed to find the extended preferred hint",
		},
		{
			name:  "the default hint is not preferred",
			state: with(block(1, mem, 0), block(1, mem, 1), block(1, mem, 2, 3)), ask: ask(9),
			on:  topology.Hint{Preferred: true},
			err: "failed to find the default preferred hint",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Allocate(tt.state, tt.ask, tt.on)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if tt.err == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			want := fmt.Sprintf("Allocate failed due to [memorymanager] %s, which is unexpected", tt.err)
			if reason.Of(err) != "UnexpectedAdmissionError" || reason.Message(err) != want {
				t.Errorf("got  %v\nwant %s", err, want)
			}
		})
	}
}

func TestReuse(t *testing.T) {
	ended := []Block{block(2, mem, 0), block(1, huge, 0), block(3, mem, 0), block(3, mem, 1)}
	got := Reuse(ended, []Block{block(4, mem, 0), block(2, huge, 0)})
	want := []Block{block(0, mem, 0), block(0, huge, 0), block(1, mem, 0), block(3, mem, 1)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func list(pairs ...string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

// equal is a container whose requests equal its limits.
func equal(name string, pairs ...string) corev1.Container {
	return corev1.Container{Name: name,
		Resources: corev1.ResourceRequirements{Requests: list(pairs...), Limits: list(pairs...)}}
}

func TestExclusive(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	sidecar := equal("side", "cpu", "1", "memory", "1Gi")
	sidecar.RestartPolicy = &always
	app := equal("app", "cpu", "100m", "memory", "4Gi", "hugepages-1Gi", "1Gi")
	burstable := corev1.Container{Name: "b", Resources: corev1.ResourceRequirements{Requests: list("memory", "1Gi")}}
	tests := []struct {
		name  string
		spec  corev1.PodSpec
		whole map[corev1.ResourceName]int64
		own   map[string]map[corev1.ResourceName]int64
	}{
		{name: "burstable", spec: corev1.PodSpec{Containers: []corev1.Container{app, burstable}}},
		{
			name: "guaranteed", spec: corev1.PodSpec{Containers: []corev1.Container{app}},
			whole: map[corev1.ResourceName]int64{mem: 4 * gi, huge: gi},
			own:   map[string]map[corev1.ResourceName]int64{"app": {mem: 4 * gi, huge: gi}},
		},
		{
			name: "an init container and a sidecar together need the most",
			spec: corev1.PodSpec{
				InitContainers: []corev1.Container{sidecar, equal("init", "cpu", "1", "memory", "7Gi")},
				Containers:     []corev1.Container{app},
			},
			whole: map[corev1.ResourceName]int64{mem: 8 * gi, huge: gi},
			own: map[string]map[corev1.ResourceName]int64{
				"side": {mem: gi}, "init": {mem: 7 * gi}, "app": {mem: 4 * gi, huge: gi},
			},
		},
		{
			name: "pod-level", spec: corev1.PodSpec{
				Containers: []corev1.Container{equal("app", "cpu", "1", "memory", "2Gi"), burstable, {Name: "none"}},
				Resources: &corev1.ResourceRequirements{Requests: list("cpu", "4", "memory", "6Gi"),
					Limits: list("cpu", "4", "memory", "6Gi")},
			},
			whole: map[corev1.ResourceName]int64{mem: 6 * gi},
			own:   map[string]map[corev1.ResourceName]int64{"app": {mem: 2 * gi}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := &corev1.Pod{Spec: tt.spec}
			if diff := cmp.Diff(tt.whole, ExclusivePod(p)); diff != "" {
				t.Errorf("whole (-want +got):\n%s", diff)
			}
			for _, c := range slices.Concat(tt.spec.InitContainers, tt.spec.Containers) {
				if diff := cmp.Diff(tt.own[c.Name], Exclusive(p, &c)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", c.Name, diff)
				}
			}
		})
	}
}

func TestReservedCheck(t *testing.T) {
	m := machine.Machine{Nodes: []machine.Node{{ID: 0, Memory: 4 * gi, HugePages: map[int64]int64{gi: 2}},
		{ID: 1, Memory: 4 * gi}}}
	of := func(id int, name corev1.ResourceName, size int64) Reserved {
		return Reserved{id: {name: size * gi}}
	}
	tests := []struct {
		name string
		r    Reserved
		want string
	}{
		{"equal", Reserved{0: {mem: gi}, 1: {mem: gi}}, ""},
		{"nothing", nil, "reservedMemory: memoryManagerPolicy Static needs some memory to be reserved: 2Gi in all"},
		{"wrong sum", of(1, mem, 1),
			"reservedMemory: 1Gi of memory are reserved on all NUMA nodes together, and kubeReserved, systemReserved " +
				"and evictionHard take 2Gi: make them equal"},
		{"unknown node", of(2, mem, 2), "reservedMemory: the machine has no NUMA node 2"},
		{"more than the node has besides huge pages", of(0, mem, 3),
			"reservedMemory: NUMA node 0 has 2Gi of memory, less than the 3Gi that are reserved"},
		{"huge pages", Reserved{0: {mem: 2 * gi, huge: gi}},
			"reservedMemory: 1Gi of hugepages-1Gi are reserved on all NUMA nodes together, and kubeReserved, " +
				"systemReserved and evictionHard take 0: make them equal"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			if err := tt.r.Check(m, 2*gi); err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestCheck(t *testing.T) {
	s := four().With([]Block{block(3, mem, 0), block(8, mem, 1, 2)})
	for want, blocks := range map[string][]Block{
		"": {block(6, mem, 0), block(10, mem, 1, 2), block(9, mem, 3)},
		"7Gi of memory on NUMA nodes [4]: the machine has nodes [0 1 2 3]": {block(7, mem,
			4)},
		"NUMA nodes [0] have 1Gi of memory, less than 2Gi": {block(5, mem,
			0), block(2, mem, 0)},
		"NUMA nodes [1] cannot serve together: one of them serves others alone or with other nodes": {block(1, mem,
			1)},
		"NUMA nodes [0 3] cannot serve together: one of them serves others alone or with other nodes": {block(1, mem, 0,
			3)},
		"NUMA nodes [1 2] have 10Gi of memory, less than 11Gi": {block(11, mem, 1, 2)},
	} {
		got := ""
		if err := s.Check(blocks); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// Random requests on every machine: each allocation fits, follows its hint, leaves reserved memory alone and is the
// same when repeated. Releasing it restores the previous state.
func TestAllocationsFit(t *testing.T) {
	for name, m := range machinetest.All(t) {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, uint64(len(name))))
			reserved := Reserved{}
			var total int64
			for _, n := range m.Nodes {
				reserved[n.ID] = map[corev1.ResourceName]int64{mem: capacity(n)[mem] / 10}
				total = max(total, n.Memory)
			}
			empty := NewState(m, reserved)
			var taken [][]Block
			for range 60 {
				s := empty
				for _, b := range taken {
					s = s.With(b)
				}
				ask := Request{Sizes: map[corev1.ResourceName]int64{mem: 1 + r.Int64N(gi+total*3/2)}}
				for _, w := range append(s.hints(ask), topology.Hint{}) {
					got, err := Allocate(s, ask, topology.Hint{Nodes: w.Nodes})
					if err != nil {
						if w.Nodes != 0 || len(s.hints(ask)) > 0 {
							t.Fatalf("%v: %v", w, err)
						}
						continue
					}
					if err := s.Check(got); err != nil || w.Nodes != 0 && got[0].Nodes != w.Nodes {
						t.Fatalf("requested %v on %v, got %v: %v", ask, w, got, err)
					}
					again, _ := Allocate(s, ask, topology.Hint{Nodes: w.Nodes})
					if diff := cmp.Diff(got, again); diff != "" {
						t.Fatalf("a repeated request differs (-first +second):\n%s", diff)
					}
				}
				if got, err := Allocate(s, ask, topology.Hint{}); err == nil {
					taken = append(taken, got)
				} else if len(taken) > 0 {
					taken = slices.Delete(taken, 0, 1+r.IntN(len(taken)))
				}
			}
			for _, n := range m.Nodes {
				if free, _ := empty.Free(topology.Of(n.ID), mem); free > capacity(n)[mem]-reserved[n.ID][mem] {
					t.Errorf("node %d allocates reserved memory", n.ID)
				}
			}
		})
	}
}

func BenchmarkHints(b *testing.B) {
	for _, nodes := range []int{1, 2, 4, 8, 16} {
		m := machine.Machine{}
		for id := range nodes {
			m.Nodes = append(m.Nodes, machine.Node{ID: id, Memory: 64 * gi})
		}
		s := NewState(m, nil)
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			for b.Loop() {
				s.hints(ask(1))
			}
		})
	}
}
