package dockerstats

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/cgroups"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/diskusage"
)

const (
	id    = "0123456789abcdef"
	pause = "fedcba9876543210"
)

// tree writes files below a directory.
func tree(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

// v1 has the files of a cgroup on cgroup v1.
func v1(path, cpu, memory, inactive string) map[string]string {
	return map[string]string{
		"cg/cpu/" + path + "/cpu.stat":                 "nr_periods 4\nnr_throttled 1\nthrottled_time 5000000000",
		"cg/cpuacct/" + path + "/cpuacct.usage":        cpu,
		"cg/cpuacct/" + path + "/cpuacct.stat":         "user 100\nsystem 50",
		"cg/cpuacct/" + path + "/cpuacct.usage_percpu": cpu,
		"cg/memory/" + path + "/memory.stat": "total_rss 8192\ntotal_inactive_file " +
			inactive + "\ntotal_swap 77\ntotal_pgfault 3\ntotal_pgmajfault 1",
		"cg/memory/" + path + "/memory.usage_in_bytes":           memory,
		"cg/memory/" + path + "/memory.max_usage_in_bytes":       memory,
		"cg/memory/" + path + "/memory.failcnt":                  "2",
		"cg/memory/" + path + "/memory.limit_in_bytes":           "1048576",
		"cg/memory/" + path + "/memory.memsw.usage_in_bytes":     memory,
		"cg/memory/" + path + "/memory.memsw.limit_in_bytes":     "2097152",
		"cg/memory/" + path + "/memory.memsw.failcnt":            "0",
		"cg/memory/" + path + "/memory.memsw.max_usage_in_bytes": memory,
		"cg/memory/" + path + "/memory.oom_control":              "oom_kill_disable 0\nunder_oom 0\noom_kill 9",
		"cg/memory/" + path + "/memory.use_hierarchy":            "1",
		"cg/pids/" + path + "/pids.current":                      "5",
		"cg/pids/" + path + "/pids.max":                          "max",
	}
}

// v2 has the same on cgroup v2.
func v2(path, cpu, memory, inactive string) map[string]string {
	psi := "some avg10=1.00 avg60=2.00 avg300=3.00 total=4000000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1000000"
	files := map[string]string{}
	for file, text := range map[string]string{
		"cgroup.controllers": "cpu io memory pids", "pids.current": "5", "pids.max": "max",
		"cpu.stat": "usage_usec " + cpu[:len(cpu)-3] + "\nuser_usec 1000000\nsystem_usec 500000\n" +
			"nr_periods 4\nnr_throttled 1\nthrottled_usec 5000000",
		"cpu.pressure": psi, "memory.pressure": psi, "io.pressure": psi, "io.stat": "",
		"memory.current": memory, "memory.max": "1048576", "memory.peak": memory,
		"memory.swap.current": "77", "memory.swap.max": "1048576", "memory.swap.peak": "77",
		"memory.stat":   "anon 8192\ninactive_file " + inactive + "\npgfault 3\npgmajfault 1",
		"memory.events": "low 0\nhigh 0\nmax 2\noom 9\noom_kill 9",
	} {
		files[filepath.Join("cg", path, file)] = text
	}
	return files
}

const mounts = `100 90 0:50 / / rw,relatime - overlay overlay rw,lowerdir=/l/A:/l/B,upperdir=/data/upper,workdir=/w
101 100 0:51 / /proc rw - proc proc rw
`

const counters = `Inter-|   Receive               |  Transmit
 face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier compressed
    lo:  100       1    0    0    0     0          0         0   100       1    0    0    0     0       0          0
  eth1:    1       2    3    4    0     0          0         0     5       6    7    8    0     0       0          0
  eth0: 1000      20    3    4    0     0          0         0  5000      60    7    8    0     0       0          0
`

// node is a machine of files with a pod of one container.
func node(t *testing.T, unified bool) (*Stats, *time.Time) {
	t.Helper()
	dir := t.TempDir()
	files := v1
	at := "5:cpu,cpuacct:/pod1/%\n4:memory:/pod1/%\n3:pids:/pod1/%\n2:blkio:/\n1:name=systemd:/pod1/%\n0::/\n"
	if unified {
		files, at = v2, "0::/pod1/%\n"
	}
	cgroups.TestMode = true
	t.Cleanup(func() { cgroups.TestMode = false })
	tree(t, dir, files("pod1", "9000000000", "200000", "5000"))
	tree(t, dir, files("pod1/"+id, "7000000000", "100000", "1000"))
	tree(t, dir, files("pod1/"+pause, "1000000000", "50000", "2000"))
	replaced := func(id string) string {
		text := ""
		for _, c := range at {
			if c == '%' {
				text += id
			} else {
				text += string(c)
			}
		}
		return text
	}
	tree(t, dir, map[string]string{
		"proc/10/cgroup": replaced(pause), "proc/10/net/dev": counters, "proc/10/mountinfo": mounts,
		"proc/11/cgroup": replaced(id), "proc/11/mountinfo": mounts, "proc/12/cgroup": "0::/\n",
	})
	now := time.Unix(2000, 0)
	s := New(Options{Filesystem: "/var/lib/docker", Proc: filepath.Join(dir, "proc"), Cgroups: filepath.Join(dir, "cg"),
		Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler)})
	s.layers.measure = func(_ context.Context, path string) (diskusage.Usage, error) {
		if path != "/data/upper" {
			t.Errorf("measured %s", path)
		}
		return diskusage.Usage{Bytes: 4096, Inodes: 2}, nil
	}
	return s, &now
}

func app(pid int) Container {
	return Container{PID: pid, Started: time.Unix(1000, 0), Image: "app:1", Attributes: &runtimeapi.ContainerAttributes{
		Id: id, Metadata: &runtimeapi.ContainerMetadata{Name: "app"}}}
}

func pod(own bool) Sandbox {
	return Sandbox{PID: 10, Started: time.Unix(1000, 0), OwnCgroup: own, Containers: []Container{app(11)},
		Attributes: &runtimeapi.PodSandboxAttributes{Id: pause,
			Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "default"}}}
}

func both(t *testing.T, f func(t *testing.T, unified bool)) {
	t.Run("cgroup v1", func(t *testing.T) { f(t, false) })
	t.Run("cgroup v2", func(t *testing.T) { f(t, true) })
}

func TestContainerReportsItsCgroup(t *testing.T) {
	both(t, func(t *testing.T, unified bool) {
		s, now := node(t, unified)
		first, err := s.Container(app(11))
		if err != nil {
			t.Fatal(err)
		}
		if first.WritableLayer != nil || first.Cpu.UsageNanoCores != nil {
			t.Errorf("before a measurement: %v", first)
		}
		s.layers.one(t.Context(), id)
		*now = now.Add(time.Second)
		got, err := s.Container(app(11))
		if err != nil {
			t.Fatal(err)
		}
		at := now.UnixNano()
		want := &runtimeapi.ContainerStats{
			Attributes: app(11).Attributes,
			Cpu: &runtimeapi.CpuUsage{Timestamp: at, UsageCoreNanoSeconds: value(7_000_000_000),
				UsageNanoCores: value(0)},
			Memory: &runtimeapi.MemoryUsage{Timestamp: at, WorkingSetBytes: value(99_000),
				AvailableBytes: value(949_576), UsageBytes: value(100_000),
				RssBytes: value(8192), PageFaults: value(3), MajorPageFaults: value(1)},
			WritableLayer: &runtimeapi.FilesystemUsage{Timestamp: at - 1e9, UsedBytes: value(4096),
				InodesUsed: value(2), FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: "/var/lib/docker"}},
			Swap: &runtimeapi.SwapUsage{Timestamp: at, SwapUsageBytes: value(77), SwapAvailableBytes: value(1_048_499)},
		}
		if unified {
			psi := &runtimeapi.PsiStats{Full: &runtimeapi.PsiData{Total: 1e9},
				Some: &runtimeapi.PsiData{Total: 4e9, Avg10: 1, Avg60: 2, Avg300: 3}}
			want.Cpu.Psi, want.Memory.Psi = psi, psi
		}
		if d := cmp.Diff(want, got, protocmp.Transform()); d != "" {
			t.Errorf("stats (-want +got):\n%s", d)
		}
	})
}

// A container that does not run has the last size of its layer. A container that ends meanwhile is an error: the usage
// of the machine is never reported as the container's.
func TestContainerThatDoesNotRunHasNoUsage(t *testing.T) {
	both(t, func(t *testing.T, unified bool) {
		s, _ := node(t, unified)
		ended := app(0)
		ended.UpperDir = "/data/upper"
		if got, err := s.Container(ended); err != nil || got.Cpu != nil || got.Memory != nil {
			t.Errorf("%v, %v", got, err)
		}
		for _, pid := range []int{10, 12, 13} { // another container's, one in the root cgroup, none
			if got, err := s.Container(app(pid)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("process %d: %v, %v", pid, got, err)
			}
		}
	})
}

func TestSandboxReportsItsCgroupOrTheSum(t *testing.T) {
	both(t, func(t *testing.T, unified bool) {
		for _, own := range []bool{true, false} {
			s, now := node(t, unified)
			got, err := s.Sandbox(pod(own))
			if err != nil {
				t.Fatal(err)
			}
			at := now.UnixNano()
			cpu, working, used, processes := uint64(9e9), uint64(195_000), uint64(200_000), uint64(5)
			if !own { // the sum of both containers
				cpu, working, used, processes = 8e9, 147_000, 150_000, 10
			}
			network := func(name string, rx, rxErrors, tx, txErrors uint64) *runtimeapi.NetworkInterfaceUsage {
				return &runtimeapi.NetworkInterfaceUsage{Name: name, RxBytes: value(rx), RxErrors: value(rxErrors),
					TxBytes: value(tx), TxErrors: value(txErrors)}
			}
			if got.Linux.Cpu.UsageCoreNanoSeconds.Value != cpu || got.Linux.Memory.WorkingSetBytes.Value != working ||
				got.Linux.Memory.UsageBytes.Value != used || got.Linux.Process.ProcessCount.Value != processes {
				t.Errorf("own cgroup %v: %v", own, got.Linux)
			}
			want := &runtimeapi.NetworkUsage{Timestamp: at, DefaultInterface: network("eth0", 1000, 3, 5000, 7),
				Interfaces: []*runtimeapi.NetworkInterfaceUsage{network("eth1", 1, 3, 5, 7),
					network("eth0", 1000, 3, 5000, 7)}}
			if d := cmp.Diff(want, got.Linux.Network, protocmp.Transform()); d != "" {
				t.Errorf("network (-want +got):\n%s", d)
			}
			if len(got.Linux.Containers) != 1 || got.Linux.Containers[0].Attributes.Id != id {
				t.Errorf("containers %v", got.Linux.Containers)
			}
		}
		s, _ := node(t, unified)
		host := pod(true)
		host.HostNetwork = true
		if got, err := s.Sandbox(host); err != nil || len(got.Linux.Network.Interfaces) > 0 {
			t.Errorf("in the network of the machine: %v, %v", got, err)
		}
		s, _ = node(t, unified)
		ended := pod(true)
		ended.PID, ended.Containers[0].PID = 0, 12
		if got, err := s.Sandbox(ended); err != nil || got.Linux.Cpu != nil || len(got.Linux.Containers) > 0 {
			t.Errorf("ended: %v, %v", got, err)
		}
	})
}

// A cgroup is found once, and again when it is gone: a container that was restarted has a new process. Cgroups that no
// request asks for are closed.
func TestCgroupsStayOpen(t *testing.T) {
	both(t, func(t *testing.T, unified bool) {
		s, now := node(t, unified)
		if _, err := s.Container(app(11)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Container(app(13)); err != nil { // there is no process 13 to find a cgroup by
			t.Errorf("the second request: %v", err)
		}
		s.readers.open[id].Close()
		if !unified { // on version 2 nothing is open
			if _, err := s.Container(app(13)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("after the end: %v", err)
			}
		}
		if got, err := s.Container(app(11)); err != nil || got.Cpu == nil {
			t.Errorf("after a restart: %v, %v", got, err)
		}
		*now = now.Add(closeAfter + time.Second)
		if _, err := s.Sandbox(Sandbox{PID: 10, OwnCgroup: true, Attributes: pod(true).Attributes}); err != nil {
			t.Fatal(err)
		}
		if len(s.readers.open) != 1 {
			t.Errorf("open: %v", s.readers.open)
		}
		s.readers.close()
	})
}

// Every series has a descriptor with as many labels.
func TestMetricsHaveDescriptors(t *testing.T) {
	both(t, func(t *testing.T, unified bool) {
		s, _ := node(t, unified)
		got, err := s.Metrics(pod(true))
		if err != nil {
			t.Fatal(err)
		}
		labels := map[string]int{}
		for _, d := range Descriptors() {
			labels[d.Name] = len(d.LabelKeys)
		}
		values := map[string]uint64{}
		for what, list := range map[string][]*runtimeapi.Metric{"pod": got.Metrics,
			"container": got.ContainerMetrics[0].Metrics} {
			for _, m := range list {
				if n, ok := labels[m.Name]; !ok || n != len(m.LabelValues) {
					t.Errorf("%s: %d labels, want %d", m.Name, len(m.LabelValues), n)
				}
				values[what+" "+m.Name+" "+m.LabelValues[len(m.LabelValues)-1]] = m.Value.Value
			}
		}
		for name, want := range map[string]uint64{
			"pod container_cpu_usage_seconds_total ":                    9,
			"container container_cpu_usage_seconds_total app:1":         7,
			"container container_memory_working_set_bytes app:1":        99_000,
			"container container_oom_events_total app:1":                9,
			"container container_cpu_cfs_throttled_seconds_total app:1": 5,
			"pod container_network_transmit_bytes_total eth0":           5000,
			"pod container_threads ":                                    5,
		} {
			if values[name] != want {
				t.Errorf("%s: %d, want %d", name, values[name], want)
			}
		}
	})
}

func TestUpperOfIsTheOverlayOfTheRoot(t *testing.T) {
	for text, want := range map[string]string{
		mounts: "/data/upper", "": "", "x\n": "",
		"1 2 8:1 / / rw - ext4 /dev/vda rw\n":                                                 "",
		"1 2 0:5 / /mnt rw - overlay overlay rw,upperdir=/other\n":                            "",
		"1 2 0:5 / / rw shared:1 master:2 - overlay overlay rw,upperdir=/u,workdir=/w,xino\n": "/u",
		"1 2 0:5 / / ro - overlay overlay ro,lowerdir=/a:/b\n":                                "",
	} {
		if got := upperOf(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// A layer is measured after a request, at most once a minute, at most a twentieth of the time, and no two layers at a
// time. No request waits.
func TestLayersAreMeasuredSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLayers(time.Now, slog.New(slog.DiscardHandler))
		running, count := 0, map[string]int{}
		took := time.Second
		l.measure = func(_ context.Context, path string) (diskusage.Usage, error) {
			if running++; running > 1 {
				t.Error("two measurements at a time")
			}
			time.Sleep(took)
			running--
			count[path]++
			return diskusage.Usage{Bytes: int64(count[path])}, nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- l.run(ctx) }()
		ask := func() { // for ten minutes, every ten seconds
			for range 60 {
				began := time.Now()
				for i := range 3 {
					l.of(strconv.Itoa(i), "/"+strconv.Itoa(i))
				}
				if time.Since(began) > 0 {
					t.Error("a request waited")
				}
				time.Sleep(10 * time.Second)
			}
		}
		ask()
		if n := count["/0"]; n < 9 || n > 10 {
			t.Errorf("%d measurements in ten minutes", n)
		}
		took = 10 * time.Second
		count = map[string]int{}
		time.Sleep(time.Minute)
		ask()
		if n := count["/0"]; n < 2 || n > 4 {
			t.Errorf("%d measurements of ten seconds in ten minutes", n)
		}
		count = map[string]int{}
		time.Sleep(2 * time.Hour)
		if len(count) > 0 {
			t.Errorf("measured without a request: %v", count)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
