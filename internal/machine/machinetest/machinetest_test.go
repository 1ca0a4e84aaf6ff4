package machinetest_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/internal/machine"
	"github.com/berth-run/berth/internal/machine/machinetest"
)

var update = flag.Bool("update", false, "write golden files")

// Every machine, whole.
func TestMachines(t *testing.T) {
	for name, m := range machinetest.All(t) {
		t.Run(name, func(t *testing.T) {
			got := machinetest.Summary(m)
			golden := filepath.Join("testdata", name+".golden")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("not as in %s (-want +got); -update writes it:\n%s", golden, diff)
			}
		})
	}
}

// A packed machine is the machine it was packed of, also this one.
func TestPackKeepsTheMachine(t *testing.T) {
	packed, err := machinetest.Pack(os.DirFS("/"))
	if err != nil {
		t.Fatal(err)
	}
	root, err := machinetest.Unpack(packed)
	if err != nil {
		t.Fatal(err)
	}
	want, err := machine.Read(os.DirFS("/"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := machine.Read(root)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(machinetest.Summary(want), machinetest.Summary(got)); diff != "" {
		t.Errorf("(-read +unpacked):\n%s", diff)
	}
}
