package resource

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/node/machine"
	"github.com/berth-run/berth/internal/node/resource/device"
	"github.com/berth-run/berth/internal/node/resource/memory"
	"github.com/berth-run/berth/internal/node/resource/topology"
)

const gpu corev1.ResourceName = "example.com/gpu"

// sameSets compares sets of CPUs by their elements.
var sameSets = cmp.Comparer(func(a, b cpuset.CPUSet) bool { return a.String() == b.String() })

// wide returns a machine with n nodes of 2 CPUs and 8 GiB each.
func wide(n int) machine.Machine {
	m := machine.Machine{}
	for i := range n {
		m.CPUs = append(m.CPUs, machine.CPU{ID: 2 * i, Core: 2 * i, Node: i},
			machine.CPU{ID: 2*i + 1, Core: 2*i + 1, Node: i})
		m.Nodes = append(m.Nodes, machine.Node{ID: i, CPUs: cpuset.New(2*i, 2*i+1), Memory: 8 << 30})
	}
	return m
}

// static returns a node that pins memory and all CPUs except CPU 0.
func static(nodes int) Node {
	return Node{Machine: wide(nodes), Policy: Policy{CPUs: true, ReservedCPUs: cpuset.New(0), Memory: true}}
}

func newLedger(dir string, n Node) *Ledger {
	return NewLedger(LedgerOptions{Dir: dir, Node: n, Log: slog.New(slog.DiscardHandler)})
}

func cpus(ids ...int) Allocation {
	return Allocation{Containers: map[string]Holding{"app": {CPUs: cpuset.New(ids...)}}}
}

func TestLoadAfterRestart(t *testing.T) {
	dir, n := filepath.Join(t.TempDir(), "resources"), static(4)
	a := Allocation{
		Containers: map[string]Holding{
			"app": {CPUs: cpuset.New(1, 2),
				Memory: []memory.Block{{Nodes: topology.Of(0, 3), Resource: "memory", Size: 1 << 30}}},
			"side": {CPUs: cpuset.New(3), Devices: map[corev1.ResourceName][]device.ID{gpu: {"a", "b"}}},
		},
		Pod: Holding{CPUs: cpuset.New(1, 2, 3)},
	}
	l := newLedger(dir, n)
	changed := l.Subscribe()
	for uid, a := range map[types.UID]Allocation{"1": a, "2": cpus(4), "3": {}, "4": cpus(5)} {
		if err := l.Commit(uid, a); err != nil {
			t.Fatal(err)
		}
	}
	<-changed
	if err := l.Release("4"); err != nil {
		t.Fatal(err)
	}
	<-changed
	if err := l.SetDevices("1", "side", gpu, []device.ID{"a", "c"}); err != nil {
		t.Fatal(err)
	}
	want := Held{"1": a.Clone(), "2": cpus(4)}
	want["1"].Containers["side"].Devices[gpu] = []device.ID{"a", "c"}
	again := newLedger(dir, n)
	lost, err := again.Load()
	if len(lost) > 0 || err != nil {
		t.Fatalf("lost %v, error %v", lost, err)
	}
	for _, l := range []*Ledger{l, again} {
		if diff := cmp.Diff(want, l.All(), sameSets); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if got, want := again.Shared(), cpuset.New(0, 5, 6, 7); !got.Equals(want) {
		t.Errorf("shared CPUs are %v, want %v", got, want)
	}
}

func TestShared(t *testing.T) {
	strict := static(2)
	strict.Policy.CPU.StrictReservation = true
	for _, test := range []struct {
		name string
		node Node
		held Held
		want cpuset.CPUSet
	}{
		{"no policy", Node{Machine: wide(2)}, nil, cpuset.New()},
		{"static", static(2), Held{"1": cpus(1, 2)}, cpuset.New(0, 3)},
		{"strict", strict, Held{"1": cpus(1, 2)}, cpuset.New(3)},
		{"strict, all others are held", strict, Held{"1": cpus(1, 2, 3)}, cpuset.New(0)},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := test.node.Shared(test.held); !got.Equals(test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestPodsWithoutHoldingsHaveNoFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "resources")
	l := newLedger(dir, static(1))
	for _, err := range []error{l.Commit("1", Allocation{}), l.Release("1"), l.ReleaseMemory("1", "app"),
		l.SetDevices("1", "app", gpu, nil)} {
		if err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the directory was created: %v", err)
	}
}
