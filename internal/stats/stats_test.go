package stats

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/cgroups"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/cgroupfile"
	"github.com/berth-run/berth/internal/machine"
)

// hierarchy writes the files of cgroups below a directory of the test.
func hierarchy(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func v1(dir, name string) cgroupfile.Group {
	g := cgroupfile.Group{Dirs: map[string]string{}}
	for _, c := range []string{"cpu", "cpuacct", "memory", "pids", "blkio"} {
		g.Dirs[c] = filepath.Join(dir, c, name)
	}
	return g
}

// v1Files of a cgroup that has used cpu ns and memory bytes.
func v1Files(name, cpu, memory string) map[string]string {
	return map[string]string{
		"cpu/" + name + "/cpu.stat":          "nr_periods 4\nnr_throttled 1\nthrottled_time 5000000000",
		"cpu/" + name + "/cpu.shares":        "512",
		"cpu/" + name + "/cpu.cfs_quota_us":  "50000",
		"cpu/" + name + "/cpu.cfs_period_us": "100000",
		"cpuacct/" + name + "/cpuacct.usage": cpu, "cpuacct/" + name + "/cpuacct.stat": "user 100\nsystem 50", "cpuacct/" + name + "/cpuacct.usage_percpu": cpu,
		"memory/" + name + "/memory.stat":               "cache 4096\ntotal_rss 8192\ntotal_inactive_file 1000\ntotal_swap 77\npgfault 3\npgmajfault 1",
		"memory/" + name + "/memory.usage_in_bytes":     memory,
		"memory/" + name + "/memory.max_usage_in_bytes": memory, "memory/" + name + "/memory.failcnt": "2", "memory/" + name + "/memory.limit_in_bytes": "1048576",
		"memory/" + name + "/memory.oom_control":   "oom_kill_disable 0\nunder_oom 0\noom_kill 9",
		"memory/" + name + "/memory.use_hierarchy": "1",
		"pids/" + name + "/pids.current":           "5", "pids/" + name + "/pids.max": "max",
		"pids/" + name + "/cgroup.procs": "4242\n4243",
	}
}

// fakeNode is one pod with one container.
type fakeNode struct{ pods []Pod }

func (n fakeNode) Pods() []Pod                         { return n.pods }
func (n fakeNode) System() map[string]cgroupfile.Group { return nil }
func (n fakeNode) Layers(context.Context) (map[string]Layer, error) {
	return map[string]Layer{"id1": {Bytes: 700, Inodes: 7}}, nil
}
func (n fakeNode) Images(context.Context) (uint64, uint64, string, error) {
	return 1 << 20, 10, "/", nil
}

func newStats(t *testing.T) (*Stats, *time.Time) {
	t.Helper()
	// The files of the test are no cgroup's, as the library wants them to be.
	cgroups.TestMode = true
	t.Cleanup(func() { cgroups.TestMode = false })
	files := map[string]string{}
	for name, v := range map[string][2]string{".": {"9000000000", "900000"}, "pod": {"3000000000", "300000"}, "pod/id1": {"2000000000", "200000"}} {
		for file, text := range v1Files(name, v[0], v[1]) {
			files[file] = text
		}
	}
	dir := hierarchy(t, files)
	host := hierarchy(t, map[string]string{
		"proc/stat": "cpu 1 2 3\nbtime 1700000000", "proc/meminfo": "MemTotal: 8 kB\nSwapTotal: 2 kB",
		"proc/loadavg": "0.1 0.2 0.3 1/77 1234", "proc/sys/kernel/pid_max": "32768",
		"proc/1/net/dev":    "h\n eth9: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16",
		"proc/4242/net/dev": "Inter-| Receive\n face |bytes\n    lo: 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9\n  eth0: 10 20 30 40 0 0 0 0 50 60 70 80 0 0 0 0",
	})
	volume := hierarchy(t, map[string]string{"file": "text"})
	logs := hierarchy(t, map[string]string{"app/0.log": "text"})
	now := time.Unix(1700000100, 0)
	began := time.Unix(1700000050, 0)
	return New(Options{
		Node: "n1", Root: v1(dir, "."), Machine: machine.Machine{CPUs: []machine.CPU{{ID: 0}, {ID: 1}}}, Dir: t.TempDir(), Host: host,
		Capacity: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("8Ki")}, VolumePeriod: time.Minute,
		Now: func() time.Time { return now }, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Source: fakeNode{[]Pod{{
			Namespace: "default", Name: "web", UID: types.UID("u1"), Started: began, Group: v1(dir, "pod"), Path: "/kubepods/podu1", Logs: logs,
			Containers: []Container{
				{Name: "app", ID: "id1", RuntimeName: "id1", Image: "example.com/app:1", Group: v1(dir, "pod/id1"), Path: "/kubepods/podu1/id1", Started: began},
				{Name: "ended", ID: "id2", Group: v1(dir, "pod/id2")},
			},
			Volumes: []Volume{{Name: "data", Path: volume, Ephemeral: true}, {Name: "gone", Path: volume + "/none"}},
		}}},
	}), &now
}

// series are the samples of a collector, spelled as a scrape does but for the times.
func series(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(c)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				if l.GetValue() != "" {
					labels = append(labels, l.GetName()+"="+l.GetValue())
				}
			}
			got[f.GetName()+"{"+strings.Join(labels, ",")+"}"] = value(m)
		}
	}
	return got
}

func value(m *dto.Metric) float64 {
	if m.Counter != nil {
		return m.Counter.GetValue()
	}
	return m.Gauge.GetValue()
}

func TestResource(t *testing.T) {
	s, _ := newStats(t)
	const c = "{container=app,namespace=default,pod=web}"
	const p = "{namespace=default,pod=web}"
	want := map[string]float64{
		"node_cpu_usage_seconds_total{}": 9, "node_memory_working_set_bytes{}": 899000, "node_swap_usage_bytes{}": 77,
		"pod_cpu_usage_seconds_total" + p: 3, "pod_memory_working_set_bytes" + p: 299000, "pod_swap_usage_bytes" + p: 77,
		"container_cpu_usage_seconds_total" + c: 2, "container_memory_working_set_bytes" + c: 199000, "container_swap_usage_bytes" + c: 77,
		"container_start_time_seconds" + c: 1700000050, "scrape_error{}": 0, "resource_scrape_error{}": 0,
	}
	if d := cmp.Diff(want, series(t, Resource{s})); d != "" {
		t.Error(d)
	}
}

func TestCadvisor(t *testing.T) {
	s, _ := newStats(t)
	got := series(t, Cadvisor{s})
	const c = "container=app,id=/kubepods/podu1/id1,image=example.com/app:1,name=id1,namespace=default,pod=web"
	const p = "id=/kubepods/podu1"
	for name, want := range map[string]float64{
		"container_cpu_usage_seconds_total{container=app,cpu=total" + strings.TrimPrefix(c, "container=app") + "}": 2,
		"container_cpu_usage_seconds_total{cpu=total,id=/}":                                                        9,
		"container_cpu_cfs_throttled_seconds_total{" + c + "}":                                                     5,
		"container_memory_working_set_bytes{" + c + "}":                                                            199000,
		"container_memory_rss{" + c + "}":                                                                          8192,
		"container_oom_events_total{" + c + "}":                                                                    9,
		"container_spec_cpu_quota{" + c + "}":                                                                      50000,
		"container_spec_cpu_shares{" + p + ",namespace=default,pod=web}":                                           512,
		"container_spec_memory_limit_bytes{" + c + "}":                                                             1048576,
		"container_processes{" + c + "}":                                                                           2,
		"container_threads{" + c + "}":                                                                             5,
		"container_fs_usage_bytes{" + c + "}":                                                                      700,
		"container_network_receive_bytes_total{" + p + ",interface=eth0,namespace=default,pod=web}":                10,
		"container_network_transmit_packets_dropped_total{" + p + ",interface=eth0,namespace=default,pod=web}":     80,
		"machine_cpu_cores{}":                                                                                      2, "machine_memory_bytes{}": 8192, "container_scrape_error{}": 0,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s is %v (%t), want %v", name, v, ok, want)
		}
	}
	for name := range got {
		if strings.Contains(name, "ended") {
			t.Errorf("%s: its container has no cgroup any more", name)
		}
	}
}

func TestSummary(t *testing.T) {
	s, now := newStats(t)
	first, err := s.Summary(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	if first.Node.CPU.UsageNanoCores != nil {
		t.Error("a rate is told after one look")
	}
	*now = now.Add(2 * time.Second)
	second, err := s.Summary(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	n := second.Node
	if n.NodeName != "n1" || *n.CPU.UsageNanoCores != 0 || *n.Memory.WorkingSetBytes != 899000 || n.StartTime.Unix() != 1700000000 ||
		n.Network.Name != "eth9" || *n.Rlimit.NumOfRunningProcesses != 77 || *n.Runtime.ImageFs.UsedBytes != 1<<20 || *n.Swap.SwapAvailableBytes != 2048-77 {
		t.Errorf("node %+v", n)
	}
	if len(second.Pods) != 1 || len(second.Pods[0].Containers) != 1 {
		t.Fatalf("pods %+v", second.Pods)
	}
	p := second.Pods[0]
	c := p.Containers[0]
	if p.PodRef.UID != "u1" || *p.Memory.WorkingSetBytes != 299000 || *p.Network.RxBytes != 10 || *p.ProcessStats.ProcessCount != 2 {
		t.Errorf("pod %+v", p)
	}
	if c.Name != "app" || *c.Memory.AvailableBytes != 1048576-199000 || *c.Rootfs.UsedBytes != 700 || *c.Logs.InodesUsed != 1 {
		t.Errorf("container %+v", c)
	}
	if len(p.VolumeStats) != 1 || p.VolumeStats[0].Name != "data" || *p.VolumeStats[0].UsedBytes == 0 {
		t.Errorf("volumes %+v", p.VolumeStats)
	}
	if want := 700 + *c.Logs.UsedBytes + *p.VolumeStats[0].UsedBytes; *p.EphemeralStorage.UsedBytes != want {
		t.Errorf("ephemeral storage %d, want %d", *p.EphemeralStorage.UsedBytes, want)
	}
	brief, err := s.Summary(t.Context(), true)
	if err != nil || brief.Pods[0].VolumeStats != nil || brief.Node.Fs != nil || brief.Pods[0].CPU == nil {
		t.Errorf("only CPU and memory: %+v, %v", brief, err)
	}
}

func TestRates(t *testing.T) {
	r := rates{last: map[string]point{}}
	at := time.Unix(0, 0)
	for _, c := range []struct {
		after time.Duration
		usage uint64
		want  *uint64
	}{
		{0, 100, nil},
		{2 * time.Second, 100 + 3e9, new(uint64(15e8))},
		{100 * time.Millisecond, 100 + 4e9, new(uint64(15e8))}, // too soon: as before
		{time.Second, 50, nil},                                 // another cgroup of its name
	} {
		at = at.Add(c.after)
		if d := cmp.Diff(c.want, r.next("a", at, c.usage)); d != "" {
			t.Errorf("at %v: %s", at, d)
		}
	}
	r.keep(at.Add(time.Second))
	if len(r.last) != 0 {
		t.Error("it remembers what nobody asked about")
	}
}

// The cgroup of this process says something, whatever the version of the host.
func TestReadsTheKernel(t *testing.T) {
	g := cgroupfile.Group{Unified: true, Dirs: map[string]string{"": "/sys/fs/cgroup"}}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err != nil {
		g = cgroupfile.Group{Dirs: map[string]string{}}
		for _, c := range []string{"cpu", "cpuacct", "memory", "pids", "blkio"} {
			g.Dirs[c] = "/sys/fs/cgroup/" + c
		}
	}
	s, err := (&Stats{Options: Options{Root: g, Now: time.Now}}).root()
	if err != nil {
		t.Fatal(err)
	}
	if s.CpuStats.CpuUsage.TotalUsage == 0 || s.MemoryStats.Usage.Usage == 0 {
		t.Errorf("the machine has used no CPU or memory: %+v", s.Stats)
	}
}
