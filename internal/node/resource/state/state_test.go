package state

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/node/resource"
	"github.com/berth-run/berth/internal/node/resource/memory"
	"github.com/berth-run/berth/internal/node/resource/topology"
)

type found = map[types.UID]resource.Allocation

var sameSets = cmp.Comparer(func(a, b cpuset.CPUSet) bool { return a.String() == b.String() })

func cpus(ids ...int) resource.Holding { return resource.Holding{CPUs: cpuset.New(ids...)} }

// Real kubelets wrote these checksums.
func TestParseCPUs(t *testing.T) {
	tests := []struct {
		name, text string
		want       found
		err        string
	}{
		{name: "empty", text: `{"policyName":"none","defaultCPUSet":"4-6","entries":{},"checksum":354655845}`,
			want: found{}},
		{
			name: "version 2",
			text: `{"policyName":"none","defaultCPUSet":"1-3","entries":{"pod":{"container1":"4-6",` +
				`"container2":"1-3"}},"checksum":3610638499}`,
			want: found{"pod": {Containers: map[string]resource.Holding{"container1": cpus(4, 5, 6),
				"container2": cpus(1, 2, 3)}}},
		},
		{
			name: "version 3",
			text: `{"policyName":"none","defaultCPUSet":"1-3","entries":{"pod":{"container1":"4-6",` +
				`"container2":"1-3"}},"podEntries":{"pod":{"cpuSet":"4-6"}},"checksum":2649431787}`,
			want: found{"pod": {Containers: map[string]resource.Holding{"container1": cpus(4, 5, 6),
				"container2": cpus(1, 2, 3)}, Pod: cpus(4, 5, 6)}},
		},
		{
			name: "containers that share their pod's",
			text: `{"entries":{"pod":{"own":"4","a":"5-6","b":"5-6"}},"podEntries":{"pod":{"cpuSet":"4-6"}}}`,
			want: found{"pod": {Containers: map[string]resource.Holding{"own": cpus(4)}, Pod: cpus(4, 5, 6)}},
		},
		{name: "version 1",
			text: `{"policyName":"none","defaultCPUSet":"1-3","entries":{"containerID1":"4-6","containerID2":"1-3"},` +
				`"checksum":3680390589}`},
		{name: "version 1, empty", text: `{"policyName":"none","defaultCPUSet":"1-3","checksum":1694838852}`,
			want: found{}},
		{name: "wrong checksum", text: `{"policyName":"none","defaultCPUSet":"4-6","entries":{},"checksum":1337}`,
			err: "has checksum 1337, which does not match its content"},
		{name: "cut off", text: `{`, err: "is not a CPU manager state: unexpected end of JSON input"},
		{name: "not a list of CPUs", text: `{"entries":{"pod":{"c":"asd"}}}`,
			err: `container "c" of pod pod: parse list "asd": strconv.ParseUint: parsing "asd": invalid syntax`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseCPUs([]byte(tt.text))
			if diff := cmp.Diff(tt.want, got, sameSets); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if text := errorText(err); text != tt.err {
				t.Errorf("error %q, want %q", text, tt.err)
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

const machineState = `"machineState":{"0":{"numberOfAssignments":0,"memoryMap":{"memory":{"total":2048,` +
	`"systemReserved":512,"allocatable":1536,"reserved":512,"free":1024}},"cells":[]}}`

func TestParseMemory(t *testing.T) {
	half := []memory.Block{{Nodes: topology.Of(0), Resource: "memory", Size: 512}}
	const entries = `"entries":{"pod":{"container1":[{"numaAffinity":[0],"type":"memory","size":512}]}}`
	tests := []struct {
		name, text string
		want       found
		err        string
	}{
		{
			name: "version 1",
			text: `{"policyName":"static",` + machineState + `,` + entries + `,"checksum":4215593881}`,
			want: found{"pod": {Containers: map[string]resource.Holding{"container1": {Memory: half}}}},
		},
		{
			name: "version 2",
			text: `{"policyName":"static",` + machineState + `,` + entries +
				`,"podEntries":{"pod":{"memoryBlocks":[{"numaAffinity":[0],"type":"memory","size":512}]}},` +
				`"checksum":1278640530}`,
			want: found{"pod": {Containers: map[string]resource.Holding{}, Pod: resource.Holding{Memory: half}}},
		},
		{name: "wrong checksum", text: `{"policyName":"static",` + machineState + `,"checksum":101010}`,
			err: "has checksum 101010, which does not match its content"},
		{name: "node id too large", text: `{"entries":{"pod":{"c":[{"numaAffinity":[64],"type":"memory","size":1}]}}}`,
			err: `container "c" of pod pod: 1 bytes of memory of NUMA node 64 are not a valid amount of memory`},
		{name: "cut off", text: `{"entries`, err: "is not a memory manager state: unexpected end of JSON input"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseMemory([]byte(tt.text))
			if diff := cmp.Diff(tt.want, got, sameSets); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if text := errorText(err); text != tt.err {
				t.Errorf("error %q, want %q", text, tt.err)
			}
		})
	}
}

func TestJoin(t *testing.T) {
	blocks := []memory.Block{{Nodes: topology.Of(1), Resource: "memory", Size: 1}}
	got := Join(
		found{"both": {Containers: map[string]resource.Holding{"c": cpus(1)}},
			"cpus": {Containers: map[string]resource.Holding{"c": cpus(2)}}},
		found{"both": {Containers: map[string]resource.Holding{"c": {Memory: blocks}}},
			"memory": {Containers: map[string]resource.Holding{"c": {Memory: blocks}}}})
	want := found{
		"both":   {Containers: map[string]resource.Holding{"c": {CPUs: cpuset.New(1), Memory: blocks}}},
		"cpus":   {Containers: map[string]resource.Holding{"c": cpus(2)}},
		"memory": {Containers: map[string]resource.Holding{"c": {Memory: blocks}}},
	}
	if diff := cmp.Diff(want, got, sameSets); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Any text gives an error or allocations that can be kept.
func FuzzParse(f *testing.F) {
	f.Add(`{"policyName":"static","defaultCpuSet":"0","entries":{"p":{"c":"1-2"}},"podEntries":{"p":{"cpuSet":"1-3"}}}`)
	f.Add(`{` + machineState + `,"entries":{"p":{"c":[{"numaAffinity":[0,1],"type":"hugepages-2Mi","size":4}]}}}`)
	f.Add(`{"entries":{"id":"0-1"},"checksum":1}`)
	f.Add(`{"policyName":"static","podEntries":{"p":{"cpuSet":"0-4294967295"}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		all, err := ParseCPUs([]byte(text))
		mem, err2 := ParseMemory([]byte(text))
		for uid, a := range Join(all, mem) {
			if a.IsEmpty() || err != nil && err2 != nil {
				t.Errorf("pod %s holds %v, errors %v, %v", uid, a, err, err2)
			}
		}
	})
}
