package machine

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/cpuset"
)

func files(text map[string]string) fstest.MapFS {
	root := fstest.MapFS{}
	for name, content := range text {
		root[name] = &fstest.MapFile{Data: []byte(content)}
	}
	return root
}

// Read fills in values that /sys leaves out.
func TestReadIncompleteSysfs(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  Machine
	}{
		"no sysfs": {
			map[string]string{"proc/cpuinfo": "processor : 0\nprocessor : 1\n", "proc/meminfo": "MemTotal: 8 kB\n"},
			Machine{
				CPUs:  []CPU{{ID: 0}, {ID: 1, Core: 1}},
				Nodes: []Node{{CPUs: cpuset.New(0, 1), Memory: 8192, HugePages: map[int64]int64{}}},
			},
		},
		"no topology, no NUMA, no cache": {
			map[string]string{
				"sys/devices/system/cpu/online": "0,2\n", "sys/devices/system/cpu/present": "0-2\n",
				"proc/meminfo": "MemTotal: 8 kB\n",
				"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "3\n",
			},
			Machine{
				CPUs: []CPU{{ID: 0}, {ID: 2, Core: 2}}, Offline: cpuset.New(1),
				Nodes: []Node{{CPUs: cpuset.New(0, 2), Memory: 8192, HugePages: map[int64]int64{2 << 20: 3}}},
			},
		},
		"a CPU of no node, and one that two nodes claim": {
			map[string]string{
				"sys/devices/system/cpu/online": "0-2\n", "sys/devices/system/node/online": "1,4\n",
				"sys/devices/system/node/node1/cpulist": "1\n", "sys/devices/system/node/node4/cpulist": "1-2\n",
				"sys/devices/system/node/node1/distance": "10 20 20\n",
				"sys/devices/system/node/node4/distance": "20 10\n",
			},
			Machine{
				CPUs: []CPU{{ID: 0, Node: 1}, {ID: 1, Core: 1, Node: 1}, {ID: 2, Core: 2, Node: 4, Cache: 2}},
				Nodes: []Node{
					{ID: 1, CPUs: cpuset.New(0, 1), HugePages: map[int64]int64{}},
					{ID: 4, CPUs: cpuset.New(2), HugePages: map[int64]int64{}, Distances: map[int]int{1: 20, 4: 10}},
				},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Read(files(c.files))
			if diff := cmp.Diff(c.want, got, cmp.Comparer(compareSets)); diff != "" || err != nil {
				t.Errorf("error %v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestReadErrors(t *testing.T) {
	for want, text := range map[string]map[string]string{
		"read machine: no CPU in /sys/devices/system/cpu and /proc/cpuinfo: are /sys and /proc mounted?": {},
		`read machine: /sys/devices/system/cpu/online: parse list "all"`: {
			"sys/devices/system/cpu/online": "all\n"},
		"read machine: /proc/meminfo: parse memory: no line MemTotal": {"sys/devices/system/cpu/online": "0\n",
			"proc/meminfo": "x\n"},
	} {
		_, err := Read(files(text))
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

// The small cores of a hybrid processor share an L2. A cache that only one core uses does not count as last-level.
func TestLastLevel(t *testing.T) {
	cores := map[int]cpuset.CPUSet{0: cpuset.New(0, 1), 2: cpuset.New(2), 3: cpuset.New(3), 4: cpuset.New(4)}
	l3 := Cache{ID: 0, Level: 3, CPUs: cpuset.New(0, 1, 4)}
	shared := Cache{ID: 2, Level: 2, CPUs: cpuset.New(2, 3)}
	for name, c := range map[string]struct{ caches, want []Cache }{
		"none": {nil, nil},
		"of one core": {[]Cache{{ID: 0, Level: 2, CPUs: cpuset.New(0, 1)}, {ID: 2, Level: 2, CPUs: cpuset.New(2)}},
			nil},
		"hybrid": {[]Cache{l3, {ID: 0, Level: 2, CPUs: cpuset.New(0, 1)}, shared}, []Cache{l3, shared}},
	} {
		got, _ := lastLevel(cores, c.caches)
		if diff := cmp.Diff(c.want, got, cmp.Comparer(compareSets)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// For any files, a machine that can be read is consistent: its parts contain only online CPUs, and each CPU is in one
// node.
func FuzzRead(f *testing.F) {
	f.Add("0-3", "0-7", "0-1", "2-3", "0,2", "0-3", "10 21", "Node 0 MemTotal: 8 kB")
	f.Add("1", "", "0-3", "0-3", "0-1", "7", "10", "x")
	f.Add("0-8191", "0-8191", "0-4095", "4096-8191", "0-8191", "0-8191", "10 21", "x")
	f.Fuzz(func(t *testing.T, online, present, first, second, threads, cache, distance, memory string) {
		m, err := Read(files(map[string]string{
			"sys/devices/system/cpu/online": online, "sys/devices/system/cpu/present": present,
			"sys/devices/system/node/online":        "0,5",
			"sys/devices/system/node/node0/cpulist": first, "sys/devices/system/node/node5/cpulist": second,
			"sys/devices/system/node/node0/distance": distance, "sys/devices/system/node/node0/meminfo": memory,
			"sys/devices/system/cpu/cpu1/topology/thread_siblings_list": threads,
			"sys/devices/system/cpu/cpu1/cache/index0/level":            "2",
			"sys/devices/system/cpu/cpu1/cache/index0/shared_cpu_list":  cache,
		}))
		if err != nil {
			return
		}
		all := m.Online()
		for _, c := range m.CPUs {
			node, has := m.Node(c.Node)
			if !has || !node.CPUs.Contains(c.ID) || !all.Contains(c.Core) || !all.Contains(c.Cache) {
				t.Fatalf("CPU %+v is inconsistent with %+v", c, m)
			}
		}
		in := 0
		for _, n := range m.Nodes {
			in += n.CPUs.Size()
		}
		if in != all.Size() || all.Intersection(m.Offline).Size() > 0 {
			t.Fatalf("CPUs in two nodes or in none, or online and offline: %+v", m)
		}
	})
}
