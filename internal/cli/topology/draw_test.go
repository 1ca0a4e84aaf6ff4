package topology

import (
	"bytes"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/api"
	apitopology "github.com/berth-run/berth/internal/api/topology"
	"github.com/berth-run/berth/internal/base/golden"
	"github.com/berth-run/berth/internal/node/machine/machinetest"
	"github.com/berth-run/berth/internal/node/resource"
	"github.com/berth-run/berth/internal/node/resource/device"
	"github.com/berth-run/berth/internal/node/resource/memory"
	"github.com/berth-run/berth/internal/node/resource/topology"
)

func drawnAs(t *testing.T, name string, drawn *api.Topology) {
	t.Helper()
	var out bytes.Buffer
	if err := Draw(&out, drawn); err != nil {
		t.Fatal(err)
	}
	golden.Text(t, name+".txt", out.String())
}

// Draw every test machine without holders.
func TestMachines(t *testing.T) {
	for name, m := range machinetest.All(t) {
		t.Run(name, func(t *testing.T) {
			drawn := apitopology.Of(resource.Node{Machine: m}, nil, nil)
			drawnAs(t, name, &drawn)
		})
	}
}

const gpu, nic corev1.ResourceName = "example.com/gpu", "example.com/nic"

func set(t *testing.T, list string) cpuset.CPUSet {
	t.Helper()
	s, err := cpuset.Parse(list)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// held returns the pods of a busy machine: one alone on the CPUs of two caches, one with memory and
// devices, one whose containers share its CPUs, and one that has ended.
func held(t *testing.T) (resource.Held, map[types.UID]types.NamespacedName) {
	const gib = 1 << 30
	return resource.Held{
			"1": {Containers: map[string]resource.Holding{"server": {CPUs: set(t, "4-11,132-139")}}},
			"2": {Containers: map[string]resource.Holding{
				"train": {
					CPUs: set(t, "64-71,192-199"),
					Memory: []memory.Block{{Nodes: topology.Of(1), Resource: "memory", Size: 16 * gib},
						{Nodes: topology.Of(0, 1), Resource: "hugepages-1Gi", Size: 3 * gib}},
					Devices: map[corev1.ResourceName][]device.ID{gpu: {"GPU-1", "GPU-0"}, nic: {"eth\x1b[31m"}},
				},
				"feed": {CPUs: set(t, "72,200"), Devices: map[corev1.ResourceName][]device.ID{gpu: {"GPU-gone"}}},
			}},
			"3": {
				Pod:        resource.Holding{CPUs: set(t, "80-83,208-211")},
				Containers: map[string]resource.Holding{"own": {CPUs: set(t, "80,208")}},
			},
			"4": {Containers: map[string]resource.Holding{"last": {CPUs: set(t, "127,255")}}},
		}, map[types.UID]types.NamespacedName{
			"1": {Namespace: "default", Name: "web"}, "2": {Namespace: "ml", Name: "trainer"},
			"3": {Namespace: "default", Name: "bubble"},
		}
}

func TestHolders(t *testing.T) {
	all, names := held(t)
	inventory := device.Inventory{nic: {{ID: "eth\x1b[31m", Healthy: true, Nodes: topology.Of(0, 1)}}}
	for i, id := range []string{"GPU-0", "GPU-1", "GPU-2", "GPU-3", "GPU-4", "GPU-5", "GPU-6", "GPU-7", "GPU-8",
		"GPU-9", "GPU-10"} {
		inventory[gpu] = append(inventory[gpu], device.Device{ID: id, Healthy: i != 2, Nodes: topology.Of(i / 10)})
	}
	n := resource.Node{
		Machine: machinetest.Load(t, "2x64-smt-zen3"), Devices: inventory,
		Policy: resource.Policy{
			CPUs: true, Memory: true, ReservedCPUs: set(t, "0,128"),
			ReservedMemory: memory.Reserved{1: {"memory": 1 << 30, "hugepages-1Gi": 1 << 31}},
			Topology:       topology.Options{Policy: topology.Restricted, Scope: topology.ScopePod},
		},
	}
	drawn := apitopology.Of(n, all, names)
	drawnAs(t, "holders", &drawn)
}

// The test has more holders than letters.
func TestManyHolders(t *testing.T) {
	all, names := resource.Held{}, map[types.UID]types.NamespacedName{}
	for i := range 60 {
		uid := types.UID(rune('A' + i))
		all[uid] = resource.Allocation{Containers: map[string]resource.Holding{"c": {CPUs: cpuset.New(i + 1)}}}
		names[uid] = types.NamespacedName{Namespace: "default",
			Name: "pod-" + string(rune('0'+i/10)) + string(rune('0'+i%10))}
	}
	n := resource.Node{Machine: machinetest.Load(t, "4x16-subnuma-asymmetric"),
		Policy: resource.Policy{CPUs: true, ReservedCPUs: set(t, "0")}}
	drawn := apitopology.Of(n, all, names)
	drawnAs(t, "many-holders", &drawn)
}

func TestFold(t *testing.T) {
	for list, want := range map[string]string{
		"":                                   "",
		"0,2,4,6":                            "0,2,4,6",
		"0,2,4,6,8,10,12,14,16":              "0-16:2",
		"0-7,128-135,137,139,141":            "0-7,128-135,137,139,141",
		"0,4,8,12,16,20,24,28,30-33":         "0-28:4,30-33",
		"1,10,20,30,40,50,60,61,62,63,64,90": "1,10-60:10,61-64,90",
	} {
		if got := fold(set(t, list).String()); got != want {
			t.Errorf("fold(%s): %s, want %s", list, got, want)
		}
	}
}

func TestABadAnswer(t *testing.T) {
	err := Draw(&bytes.Buffer{}, &api.Topology{CPUs: "all"})
	if err == nil {
		t.Error("no error")
	}
}
