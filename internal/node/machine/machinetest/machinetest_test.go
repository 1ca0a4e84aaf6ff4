package machinetest_test

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/base/golden"
	"github.com/berth-run/berth/internal/node/machine"
	"github.com/berth-run/berth/internal/node/machine/machinetest"
)

// Each recorded machine is read as in its golden file.
func TestMachines(t *testing.T) {
	for name, m := range machinetest.All(t) {
		t.Run(name, func(t *testing.T) {
			golden.Text(t, name+".golden", machinetest.Summary(m))
		})
	}
}

// Unpacking a packed machine gives the same machine.
func TestPackKeepsTheMachine(t *testing.T) {
	for name, want := range machinetest.All(t) {
		packed, err := machinetest.Pack(machinetest.FS(t, name))
		if err != nil {
			t.Fatal(err)
		}
		root, err := machinetest.Unpack(packed)
		if err != nil {
			t.Fatal(err)
		}
		got, err := machine.Read(root)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(machinetest.Summary(want), machinetest.Summary(got)); diff != "" {
			t.Errorf("%s (-read +unpacked):\n%s", name, diff)
		}
	}
}

// The machine that the test runs on can be read. Its memory may change at any time.
func TestThisMachine(t *testing.T) {
	m, err := machine.Read(os.DirFS("/"))
	if err != nil {
		t.Fatal(err)
	}
	cpus := cpuset.New()
	for _, n := range m.Nodes {
		cpus = cpus.Union(n.CPUs)
	}
	if m.Memory() == 0 || m.Online().Size() < 1 || !cpus.Equals(m.Online()) {
		t.Errorf("no memory, no CPUs, or CPUs without a node:\n%s", machinetest.Summary(m))
	}
}
