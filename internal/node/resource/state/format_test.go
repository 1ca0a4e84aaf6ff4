package state

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/node/machine"
	"github.com/berth-run/berth/internal/node/resource"
	"github.com/berth-run/berth/internal/node/resource/device"
	"github.com/berth-run/berth/internal/node/resource/memory"
	"github.com/berth-run/berth/internal/node/resource/topology"
)

// The checksums are the kubelet's: ParseCPUs and ParseMemory verify them.
func TestFormat(t *testing.T) {
	held := resource.Held{
		"a": {Containers: map[string]resource.Holding{
			"app": {CPUs: cpuset.New(4, 5),
				Memory: []memory.Block{{Nodes: topology.Of(0), Resource: "hugepages-2Mi", Size: 2 << 20},
					{Nodes: topology.Of(0), Resource: "memory", Size: 512}}},
			"side": {Devices: map[corev1.ResourceName][]device.ID{"example.com/gpu": {"0"}}},
		}},
		"b": {
			Containers: map[string]resource.Holding{
				"app": {Memory: []memory.Block{{Nodes: topology.Of(1, 2), Resource: "memory", Size: 3000}}}}},
	}
	cpus, err := FormatCPUs(cpuset.New(0, 1, 2, 3), held)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"policyName":"static","defaultCpuSet":"0-3","entries":{"a":{"app":"4-5"}},"checksum":3875335490,` +
		`"writer":"berth"}`; string(cpus) != want {
		t.Errorf("%s\nwant %s", cpus, want)
	}
	m := machine.Machine{Nodes: []machine.Node{
		{ID: 0, Memory: 8 << 20, HugePages: map[int64]int64{2 << 20: 2, 1 << 30: 0}}, {ID: 1, Memory: 2048},
		{ID: 2, Memory: 2048},
	}}
	blocks, err := FormatMemory(m, memory.Reserved{0: {"memory": 1024}, 1: {"memory": 48}}, held)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"policyName":"Static","machineState":{` +
		`"0":{"numberOfAssignments":2,"memoryMap":{"hugepages-1Gi":{"total":0,"systemReserved":0,"allocatable":0,` +
		`"reserved":0,"free":0},` +
		`"hugepages-2Mi":{"total":4194304,"systemReserved":0,"allocatable":4194304,"reserved":2097152,` +
		`"free":2097152},` +
		`"memory":{"total":8388608,"systemReserved":1024,"allocatable":4193280,"reserved":512,"free":4192768}},` +
		`"cells":[0]},` +
		`"1":{"numberOfAssignments":1,"memoryMap":{"memory":{"total":2048,"systemReserved":48,"allocatable":2000,` +
		`"reserved":2000,"free":0}},"cells":[1,2]},` +
		`"2":{"numberOfAssignments":1,"memoryMap":{"memory":{"total":2048,"systemReserved":0,"allocatable":2048,` +
		`"reserved":1000,"free":1048}},"cells":[1,2]}},` +
		`"entries":{"a":{"app":[{"numaAffinity":[0],"type":"hugepages-2Mi","size":2097152},{"numaAffinity":[0],` +
		`"type":"memory","size":512}]},` +
		`"b":{"app":[{"numaAffinity":[1,2],"type":"memory","size":3000}]}},"checksum":2321360222,"writer":"berth"}`
	if string(blocks) != want {
		t.Errorf("%s\nwant %s", blocks, want)
	}

	gotCPUs, cpuErr := ParseCPUs(cpus)
	gotMemory, memoryErr := ParseMemory(blocks)
	if cpuErr != nil || memoryErr != nil {
		t.Fatal(cpuErr, memoryErr)
	}
	delete(held["a"].Containers, "side") // these files have no devices
	if diff := cmp.Diff(held, resource.Held(Join(gotCPUs, gotMemory)), sameSets); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !Ours(cpus) || !Ours(blocks) || Ours([]byte(`{"policyName":"static","entries":{},"checksum":1}`)) {
		t.Error("Ours does not tell an agent's file from a kubelet's")
	}
}
