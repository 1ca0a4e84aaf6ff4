package stats

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/opencontainers/cgroups"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/berth-run/berth/internal/base/cgroupfile"
	"github.com/berth-run/berth/internal/base/golden"
	"github.com/berth-run/berth/internal/base/usage"
	"github.com/berth-run/berth/internal/node/machine"
)

// hierarchy writes cgroup files below a directory of the test.
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

// v1Files returns the files of a cgroup that has used cpu nanoseconds and memory bytes.
func v1Files(name, cpu, memory string) map[string]string {
	return map[string]string{
		"cpu/" + name + "/cpu.stat":          "nr_periods 4\nnr_throttled 1\nthrottled_time 5000000000",
		"cpu/" + name + "/cpu.shares":        "512",
		"cpu/" + name + "/cpu.cfs_quota_us":  "50000",
		"cpu/" + name + "/cpu.cfs_period_us": "100000",
		"cpuacct/" + name + "/cpuacct.usage": cpu, "cpuacct/" + name + "/cpuacct.stat": "user 100\nsystem 50",
		"cpuacct/" + name + "/cpuacct.usage_percpu": cpu,
		"memory/" + name +
			"/memory.stat": "cache 4096\ntotal_rss 8192\ntotal_inactive_file 1000\ntotal_swap 77\npgfault " +
			"3\npgmajfault 1",
		"memory/" + name + "/memory.usage_in_bytes":     memory,
		"memory/" + name + "/memory.max_usage_in_bytes": memory, "memory/" + name + "/memory.failcnt": "2",
		"memory/" + name + "/memory.limit_in_bytes":      "1048576",
		"memory/" + name + "/memory.oom_control":         "oom_kill_disable 0\nunder_oom 0\noom_kill 9",
		"memory/" + name + "/memory.use_hierarchy":       "1",
		"memory/" + name + "/memory.soft_limit_in_bytes": "9223372036854771712",
		"blkio/" + name +
			"/blkio.throttle.io_service_bytes_recursive": "8:16 Read 100\n8:16 Write 200\n8:16 Total 300\nTotal 300",
		"blkio/" + name + "/blkio.throttle.io_serviced_recursive": "8:16 Read 1\n8:16 Write 2\n8:16 Total 3\nTotal 3",
		"pids/" + name + "/pids.current":                          "5", "pids/" + name + "/pids.max": "max",
		"pids/" + name + "/cgroup.procs": "4242\n4243",
	}
}

// v2Files returns the same for version 2.
func v2Files(name, cpu, memory string) map[string]string {
	psi := "some avg10=1.00 avg60=2.00 avg300=3.00 total=4000000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1000000"
	files := map[string]string{}
	for file, text := range map[string]string{
		"cgroup.controllers": "cpu io memory pids", "cgroup.procs": "4242\n4243", "pids.current": "5",
		"pids.max": "100",
		"cpu.stat": "usage_usec " + cpu[:len(cpu)-3] +
			"\nuser_usec 1000000\nsystem_usec 500000\nnr_periods 4\nnr_throttled 1\nthrottled_usec " +
			"5000000\nnr_bursts 2\nburst_usec 1000000",
		"cpu.weight": "20", "cpu.max": "50000 100000", "cpu.pressure": psi,
		"memory.current": memory, "memory.max": "1048576", "memory.peak": memory, "memory.low": "4096",
		"memory.swap.current": "77", "memory.swap.max": "100", "memory.swap.peak": "77",
		"memory.stat": "anon 8192\nfile 4096\nkernel 2048\nfile_mapped 1024\nactive_file 3000\ninactive_file " +
			"1000\npgfault 3\npgmajfault 1",
		"memory.events": "low 0\nhigh 0\nmax 2\noom 9\noom_kill 9", "memory.pressure": psi,
		"io.stat": "8:16 rbytes=100 wbytes=200 rios=1 wios=2 dbytes=0 dios=0\n9:1 rbytes=1 wbytes=2 rios=3 wios=4 " +
			"dbytes=0 dios=0", "io.pressure": psi,
	} {
		files[filepath.Join(name, file)] = text
	}
	return files
}

// fakeNode has one pod with one container.
type fakeNode struct {
	pods  []Pod
	parts map[string]Part
}

func (n fakeNode) Pods() []Pod             { return n.pods }
func (n fakeNode) System() map[string]Part { return n.parts }
func (n fakeNode) Layers(context.Context) (map[string]Layer, error) {
	return map[string]Layer{"id1": {Bytes: 700, Inodes: 7}}, nil
}
func (n fakeNode) Stores(context.Context) (images, layers Store, err error) {
	return Store{"/", 1 << 20, 10}, Store{"/proc", 1 << 21, 20}, nil
}

func newStats(t *testing.T) (*Stats, *time.Time) {
	t.Helper()
	files := map[string]string{}
	for name, v := range consumed() {
		maps.Copy(files, v1Files(name, v[0], v[1]))
	}
	return newNode(t, files, v1)
}

func newUnified(t *testing.T) (*Stats, *time.Time) {
	t.Helper()
	files := map[string]string{}
	for name, v := range consumed() {
		maps.Copy(files, v2Files(name, v[0], v[1]))
	}
	return newNode(t, files, func(dir, name string) cgroupfile.Group {
		return cgroupfile.Group{Unified: true, Dirs: map[string]string{"": filepath.Join(dir, name)}}
	})
}

// consumed returns CPU time in nanoseconds and memory by cgroup.
func consumed() map[string][2]string {
	return map[string][2]string{".": {"9000000000", "900000"}, "pod": {"3000000000", "300000"},
		"pod/id1": {"2000000000", "200000"}}
}

func newNode(t *testing.T, files map[string]string, group func(dir, name string) cgroupfile.Group) (*Stats,
	*time.Time) {
	t.Helper()
	// The library normally refuses files that are not on a cgroup file system.
	cgroups.TestMode = true
	t.Cleanup(func() { cgroups.TestMode = false })
	dir := hierarchy(t, files)
	host := hierarchy(t, map[string]string{
		"proc/stat": "cpu 1 2 3\nbtime 1700000000", "proc/meminfo": "MemTotal: 8 kB\nSwapTotal: 2 kB",
		"proc/loadavg": "0.1 0.2 0.3 1/77 1234", "proc/sys/kernel/pid_max": "65536",
		"proc/sys/kernel/threads-max": "32768",
		"proc/1/net/dev":              "h\n eth9: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16",
		"proc/4242/net/dev": "Inter-| Receive\n face |bytes\n    lo: 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9\n  eth0: 10 20 " +
			"30 40 0 0 0 0 50 60 70 80 0 0 0 0",
		"proc/4242/limits": "Limit            Soft Limit  Hard Limit  Units\n" +
			"Max processes    100         100         processes\n" +
			"Max open files   1024        524288      files",
	})
	for _, dir := range []string{"sys/dev/block", "proc/4242/fd", "proc/4243/fd"} {
		if err := os.MkdirAll(filepath.Join(host, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for fd, target := range map[string]string{"4242/fd/0": "/dev/null", "4242/fd/1": "pipe:[7]",
		"4242/fd/3": "socket:[8]", "4243/fd/4": "socket:[9]"} {
		if err := os.Symlink(target, filepath.Join(host, "proc", fd)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../../devices/virtual/block/sdq", filepath.Join(host, "sys/dev/block/8:16")); err != nil {
		t.Fatal(err)
	}
	volume := hierarchy(t, map[string]string{"file": "text"})
	logs := hierarchy(t, map[string]string{"app/0.log": "text"})
	now := time.Unix(1700000100, 0)
	began := time.Unix(1700000050, 0)
	return New(Options{
		Node: "n1", Root: group(dir, "."), Machine: machine.Machine{CPUs: []machine.CPU{{ID: 0}, {ID: 1}}},
		Dir: t.TempDir(), Host: host,
		Identity: corev1.NodeSystemInfo{MachineID: "m", SystemUUID: "s", BootID: "b"},
		Capacity: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("8Ki")}, VolumePeriod: time.Minute,
		Now: func() time.Time { return now }, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Source: fakeNode{pods: []Pod{{
			Namespace: "default", Name: "web", UID: types.UID("u1"), Started: began, Group: group(dir, "pod"),
			Path: "/kubepods/podu1", Logs: logs,
			Sandbox: Container{ID: "box", RuntimeName: "box", Image: "example.com/pause:1",
				Path: "/kubepods/podu1/box"},
			Containers: []Container{
				{Name: "app", ID: "id1", RuntimeName: "id1", Image: "example.com/app:1", Group: group(dir, "pod/id1"),
					Path: "/kubepods/podu1/id1", Started: began},
				{Name: "ended", ID: "id2", Group: group(dir, "pod/id2")},
			},
			Volumes: []Volume{
				{Name: "data", Path: volume, Ephemeral: true}, {Name: "gone", Path: volume + "/none"},
				{Name: "claimed", Path: volume, Claim: &statsapi.PVCReference{Name: "c1", Namespace: "default"}},
			},
		}}},
	}), &now
}

// anySize hides values that depend on the test's file system.
func anySize(m *dto.Metric) {
	device, id := "", ""
	for _, l := range m.Label {
		switch l.GetName() {
		case "device":
			device = l.GetValue()
			if device != "/dev/sdq" && device != "9:1" {
				l.Value = new("DISK")
			}
		case "id":
			id = l.GetValue()
		}
	}
	if m.Gauge != nil && device != "" && id == "/" {
		m.Gauge.Value = new(0.0)
	}
}

// checkScrape compares a scrape with testdata/NAME.txt. Sizes of the test's file system are hidden.
func checkScrape(t *testing.T, name string, g prometheus.Gatherer) {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, f := range families {
		for _, m := range f.Metric {
			anySize(m)
		}
		slices.SortFunc(f.Metric, func(a, b *dto.Metric) int { return strings.Compare(a.String(), b.String()) })
		if _, err := expfmt.MetricFamilyToText(&got, f); err != nil {
			t.Fatal(err)
		}
	}
	golden.Text(t, name+".txt", got.String())
	// A registry rejects malformed series.
	checked := prometheus.NewPedanticRegistry()
	for _, f := range families {
		for _, m := range f.Metric {
			if !slices.IsSortedFunc(m.Label, func(a, b *dto.LabelPair) int {
				return strings.Compare(a.GetName(), b.GetName())
			}) {
				t.Errorf("the labels of %s are out of order: %v", f.GetName(), m)
			}
		}
	}
	if _, err := (prometheus.Gatherers{checked, g}).Gather(); err != nil {
		t.Error(err)
	}
}

// The scrapes of a node with one pod, on both cgroup versions.
func TestScrapes(t *testing.T) {
	for name, build := range map[string]func(*testing.T) (*Stats, *time.Time){"v1": newStats, "v2": newUnified} {
		t.Run(name, func(t *testing.T) {
			s, _ := build(t)
			checkScrape(t, "resource-"+name, Resource{s})
			checkScrape(t, "cadvisor-"+name, Cadvisor{s})
		})
	}
}

func TestVolumes(t *testing.T) {
	s, _ := newStats(t)
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(NewVolumes(s))
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, f := range families {
		m := f.Metric[0]
		if h := m.Histogram; h != nil {
			got[f.GetName()] = fmt.Sprint(m.Label[0].GetValue(), " ", h.GetSampleCount())
			continue
		}
		got[f.GetName()] = fmt.Sprint(m.Label[0].GetValue(), "/", m.Label[1].GetValue(), " ", m.Gauge.GetValue() > 0)
	}
	want := map[string]string{"kubelet_volume_metric_collection_duration_seconds": "du 1"}
	for _, name := range []string{"capacity_bytes", "available_bytes", "used_bytes", "inodes", "inodes_free",
		"inodes_used"} {
		want["kubelet_volume_stats_"+name] = "default/c1 true"
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// usages implements drivers.
type usages map[string]*statsapi.FsStats

func (usages) VolumeAbnormal(string) (abnormal, known bool) { return false, false }

func (u usages) VolumeUsage(path string) (*statsapi.FsStats, bool) {
	f, ok := u[path]
	return f, ok
}

// health implements drivers. Nil is an unknown condition.
type health struct {
	usages
	abnormal *bool
}

func (h health) VolumeAbnormal(string) (abnormal, known bool) {
	return h.abnormal != nil && *h.abnormal, h.abnormal != nil
}

func TestVolumesExportTheConditionThatADriverReports(t *testing.T) {
	const name = "kubelet_volume_stats_health_status_abnormal"
	header := "# HELP " + name + " 1 if the driver of the volume reports an abnormal condition, 0 if it reports a " +
		"normal one\n# TYPE " + name + " gauge\n" + name + `{namespace="default",persistentvolumeclaim="c1"} `
	for _, test := range []struct {
		abnormal *bool
		want     string
	}{{new(false), header + "0\n"}, {new(true), header + "1\n"}, {nil, ""}} {
		s, _ := newStats(t)
		s.Drivers = health{abnormal: test.abnormal}
		if err := testutil.CollectAndCompare(NewVolumes(s), strings.NewReader(test.want), name); err != nil {
			t.Error(err)
		}
	}
}

// The usage of a volume comes from its driver or, for a device, from the kernel, and is measured once in a period.
func TestVolumeUsageSource(t *testing.T) {
	s, now := newStats(t)
	reported := &statsapi.FsStats{CapacityBytes: new(uint64(100)), AvailableBytes: new(uint64(60)),
		UsedBytes: new(uint64(40))}
	s.Drivers = usages{"/told": reported, "/silent": nil}
	disk := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(disk, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	first := *now
	for _, c := range []struct {
		volume Volume
		want   *statsapi.FsStats
	}{
		{Volume{Path: "/told"}, reported},
		{Volume{Path: "/told", Block: true}, reported},
		{Volume{Path: "/silent"}, nil},
		{Volume{Path: disk, Block: true},
			&statsapi.FsStats{Time: metav1.NewTime(first), CapacityBytes: new(uint64(4096))}},
	} {
		got, err := s.volume(t.Context(), c.volume)
		if c.want == nil {
			if !gone(err) {
				t.Errorf("%+v: %v", c.volume, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%+v: %v", c.volume, err)
		}
		if d := cmp.Diff(*c.want, got.FsStats); d != "" {
			t.Errorf("%+v: %s", c.volume, d)
		}
	}
	if err := os.Truncate(disk, 8192); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		after time.Duration
		want  uint64
	}{{s.VolumePeriod - 1, 4096}, {s.VolumePeriod, 8192}} {
		*now = first.Add(c.after)
		got, err := s.volume(t.Context(), Volume{Path: disk, Block: true})
		if err != nil || *got.CapacityBytes != c.want {
			t.Errorf("after %v: %v, %v; want %d", c.after, got, err, c.want)
		}
	}
}

// A volume whose server is gone does not block requests forever, and is not measured a second time meanwhile.
func TestHangingVolumeTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		times, answer := 0, make(chan struct{})
		s := sizes{known: map[string]*size{}}
		measure := func(context.Context) (*statsapi.FsStats, error) {
			times++
			<-answer
			return &statsapi.FsStats{UsedBytes: new(uint64(1))}, nil
		}
		begun := time.Now()
		for range 2 {
			if _, err := s.of(t.Context(), "/v", time.Now(), time.Minute, measure); err == nil ||
				!strings.Contains(err.Error(), "no result after 10s") {
				t.Errorf("answer after %v: %v", time.Since(begun), err)
			}
		}
		if took := time.Since(begun); took != measureTimeout {
			t.Errorf("both requests waited for %v together, want %v", took, measureTimeout)
		}
		close(answer)
		synctest.Wait()
		got, err := s.of(t.Context(), "/v", time.Now(), time.Minute, measure)
		if err != nil || *got.UsedBytes != 1 || times != 1 || !got.Time.Time.Equal(begun) {
			t.Errorf("after its server answered: %+v, %v, measured %d times", got, err, times)
		}
	})
}

// The agent is measured by its cgroup, or as a single process if it has no cgroup of its own.
func TestSystemContainers(t *testing.T) {
	for name, c := range map[string]struct {
		cgroup string
		want   statsapi.ContainerStats
	}{
		"a cgroup of its own": {"1:cpu:/pod\n2:cpuacct:/pod\n4:memory:/pod", statsapi.ContainerStats{
			CPU: &statsapi.CPUStats{UsageCoreNanoSeconds: new(uint64(3e9)), UsageNanoCores: nil},
			Memory: &statsapi.MemoryStats{UsageBytes: new(uint64(300000)), WorkingSetBytes: new(uint64(299000)),
				AvailableBytes: new(uint64(1048576 - 299000)),
				RSSBytes:       new(uint64(8192)), PageFaults: new(uint64(3)), MajorPageFaults: new(uint64(1))},
		}},
		"the machine's": {"1:cpu:/\n2:cpuacct:/\n4:memory:/pod", statsapi.ContainerStats{
			CPU: &statsapi.CPUStats{UsageCoreNanoSeconds: new(uint64(35e8))},
			Memory: &statsapi.MemoryStats{UsageBytes: new(uint64(80 << 10)), WorkingSetBytes: new(uint64(80 << 10)),
				RSSBytes: new(uint64(50 << 10)), PageFaults: new(uint64(12)), MajorPageFaults: new(uint64(2))},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := newStats(t)
			dir := filepath.Join(s.Host, "proc/7")
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			for file, text := range map[string]string{
				"cgroup": c.cgroup, "status": "Name: a\nVmRSS: 80 kB\nRssAnon: 50 kB\nVmSwap: 1 kB",
				"stat": "7 (a ) b) S 1 7 7 0 -1 0 10 0 2 0 300 50 0 0 20 0 9 0 500 1 1 1",
			} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			node := s.Source.(fakeNode)
			node.parts = map[string]Part{statsapi.SystemContainerKubelet: {PID: 7}}
			s.Source = node
			sum, err := s.Summary(t.Context(), true)
			if err != nil || len(sum.Node.SystemContainers) != 1 {
				t.Fatalf("summary %+v, error %v", sum, err)
			}
			got := sum.Node.SystemContainers[0]
			if got.Name != "kubelet" || got.StartTime.Unix() != 1700000005 {
				t.Errorf("container %s started at %v", got.Name, got.StartTime)
			}
			anyTime := cmpopts.IgnoreTypes(metav1.Time{})
			if d := cmp.Diff(c.want, statsapi.ContainerStats{CPU: got.CPU, Memory: got.Memory}, anyTime); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestSummary(t *testing.T) {
	s, now := newStats(t)
	first, err := s.Summary(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	if first.Node.CPU.UsageNanoCores != nil {
		t.Error("there is a rate after the first request")
	}
	*now = now.Add(2 * time.Second)
	second, err := s.Summary(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	n := second.Node
	if n.NodeName != "n1" || *n.CPU.UsageNanoCores != 0 || *n.Memory.WorkingSetBytes != 899000 ||
		n.StartTime.Unix() != 1700000000 ||
		n.Network.Name != "eth9" || *n.Rlimit.NumOfRunningProcesses != 77 || *n.Runtime.ImageFs.UsedBytes != 1<<20 ||
		*n.Runtime.ContainerFs.UsedBytes != 1<<21 || *n.Runtime.ContainerFs.InodesUsed != 20 ||
		*n.Swap.SwapAvailableBytes != 2048-77 {
		t.Errorf("node %+v", n)
	}
	if len(second.Pods) != 1 || len(second.Pods[0].Containers) != 1 {
		t.Fatalf("pods %+v", second.Pods)
	}
	p := second.Pods[0]
	c := p.Containers[0]
	if p.PodRef.UID != "u1" || *p.Memory.WorkingSetBytes != 299000 ||
		*p.Memory.AvailableBytes != 1048576-299000 || *p.Network.RxBytes != 10 ||
		*p.ProcessStats.ProcessCount != 2 {
		t.Errorf("pod %+v", p)
	}
	if c.Name != "app" || *c.Memory.AvailableBytes != 1048576-199000 || *c.Rootfs.UsedBytes != 700 ||
		*c.Logs.InodesUsed != 1 {
		t.Errorf("container %+v", c)
	}
	if len(p.VolumeStats) != 2 || p.VolumeStats[0].Name != "data" || *p.VolumeStats[0].UsedBytes == 0 ||
		p.VolumeStats[1].PVCRef.Name != "c1" {
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

// The cgroup of this process can be read, whatever cgroup version the host uses.
func TestReadCgroupOfThisProcess(t *testing.T) {
	g := cgroupfile.Group{Unified: true, Dirs: map[string]string{"": "/sys/fs/cgroup"}}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err != nil {
		g = cgroupfile.Group{Dirs: map[string]string{}}
		for _, c := range []string{"cpu", "cpuacct", "memory", "pids", "blkio"} {
			g.Dirs[c] = "/sys/fs/cgroup/" + c
		}
	}
	s, err := (&Stats{Options: Options{Root: g, Now: time.Now}}).root(usage.Full)
	if err != nil {
		t.Fatal(err)
	}
	if s.CpuStats.CpuUsage.TotalUsage == 0 || s.MemoryStats.Usage.Usage == 0 {
		t.Errorf("the process has used no CPU or memory: %+v", s.Stats)
	}
}
