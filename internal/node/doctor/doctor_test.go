package doctor

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// healthy returns a machine without findings.
func healthy() Facts {
	return Facts{
		Kernel: "6.12.9-amd64", Cgroup: Cgroup{2, []string{"cpuset", "cpu", "io", "memory", "pids"}},
		Overlay: true, Nftables: true, IPTables: true,
		Sysctls: map[string]int64{"fs.inotify.max_user_instances": 8192, "kernel.pid_max": 4194304},
		Disk: Disk{Path: "/var/lib/berth", Type: "ext4", Size: 100 * gib, Free: 50 * gib, Inodes: 100,
			InodesOK: 50},
		Clock:          Clock{Now: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC), Synchronized: true},
		BuiltInNetwork: true, OwnImages: true,
		CRIU: true,
		Networks: []Network{{"eth0", netip.MustParsePrefix("0.0.0.0/0")},
			{"eth0", netip.MustParsePrefix("10.1.0.0/16")}},
	}
}

func TestExamine(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*Facts)
		want   []string // check, level and the beginning of the message
	}{
		{"healthy", func(*Facts) {}, nil},
		{"very old kernel", func(f *Facts) { f.Kernel = "4.19.0" },
			[]string{"kernel problem kernel 4.19.0 is older than 5.3"}},
		{"old kernel", func(f *Facts) { f.Kernel = "6.1.0-18" },
			[]string{"kernel note kernel 6.1.0-18 is older than 6.3"}},
		{"kernel with a suffix", func(f *Facts) { f.Kernel = "6.3-rc1" }, nil},
		{"unreadable kernel", func(f *Facts) { f.Kernel = "" }, nil},
		{"no cgroups", func(f *Facts) { f.Cgroup = Cgroup{} }, []string{"cgroups problem no cgroup file system"}},
		{"cgroup v1 without memory", func(f *Facts) { f.Cgroup = Cgroup{1, []string{"cpu", "cpuset", "pids"}} },
			[]string{"cgroups note cgroup v1", "cgroups problem the cgroup controller memory is missing"}},
		{"no overlayfs", func(f *Facts) { f.Overlay = false }, []string{"modules warning the kernel has no overlayfs"}},
		{"iptables alone", func(f *Facts) { f.Nftables = false },
			[]string{"modules problem the kernel has no nftables"}},
		{"iptables alone, another runtime", func(f *Facts) { f.Nftables, f.BuiltInNetwork = false, false },
			[]string{"modules note the kernel has no nftables"}},
		{"no packet filter, another runtime",
			func(f *Facts) { f.Nftables, f.IPTables, f.BuiltInNetwork = false, false, false },
			[]string{"modules problem the kernel has neither nftables nor iptables"}},
		{"few inotify instances", func(f *Facts) { f.Sysctls["fs.inotify.max_user_instances"] = 128 },
			[]string{"sysctls warning fs.inotify.max_user_instances is 128: programs"}},
		{"swap", func(f *Facts) { f.Swaps = []string{"/dev/sda2"} }, []string{"swap note swap is on (/dev/sda2)"}},
		{"swap that pods use", func(f *Facts) { f.Swaps, f.SwapUsed = []string{"/dev/sda2"}, true }, nil},
		{"full disk", func(f *Facts) { f.Disk.Free = gib },
			[]string{"disk warning /var/lib/berth has 1.0 of 100.0 GiB free"}},
		{"no inodes", func(f *Facts) { f.Disk.InodesOK = 4 },
			[]string{"disk warning /var/lib/berth has 4 of 100 inodes"}},
		{"no limit of inodes", func(f *Facts) { f.Disk.Inodes, f.Disk.InodesOK = 0, 0 }, nil},
		{"in memory", func(f *Facts) { f.Disk.Type = "tmpfs" }, []string{"disk warning /var/lib/berth is in memory"}},
		{"on the network", func(f *Facts) { f.Disk.Type = "nfs" },
			[]string{"disk problem /var/lib/berth is on a network file system"}},
		{"read-only", func(f *Facts) { f.Disk.ReadOnly = true },
			[]string{"disk problem the file system of /var/lib/berth"}},
		{"clock without a battery", func(f *Facts) { f.Clock.Now = time.Unix(0, 0) },
			[]string{"clock problem the clock shows 1970-01-01"}},
		{"drifting clock", func(f *Facts) { f.Clock.Synchronized = false }, []string{"clock note the kernel's clock"}},
		{"overlapping network", func(f *Facts) { f.PodRanges = []netip.Prefix{netip.MustParsePrefix("10.1.2.0/24")} },
			[]string{"networks problem pod addresses 10.1.2.0/24 overlap with 10.1.0.0/16 of eth0"}},
		{"free range", func(f *Facts) { f.PodRanges = []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16")} }, nil},
		{"a kubelet", func(f *Facts) { f.Kubelets = []int{42} },
			[]string{"runtimes problem a kubelet runs here (pid 42)"}},
		{"another runtime", func(f *Facts) { f.Runtimes = []string{"/run/docker.sock"} },
			[]string{"runtimes note other container runtimes answer at /run/docker.sock"}},
		{"the runtime of the configuration", func(f *Facts) {
			f.Runtimes, f.OwnImages = []string{"/run/x.sock"}, false
		}, nil},
		{"no CRIU", func(f *Facts) { f.CRIU = false },
			[]string{"checkpoints note the program criu is not in PATH"}},
		{"few capabilities", func(f *Facts) { f.Missing = []string{"CAP_SYS_ADMIN", "CAP_MKNOD"} },
			[]string{"capabilities problem this process lacks CAP_SYS_ADMIN, CAP_MKNOD"}},
	} {
		f := healthy()
		test.change(&f)
		var got []string
		for i, finding := range Examine(f) {
			line := fmt.Sprintf("%s %s %s", finding.Check, finding.Level, finding.Message)
			if i < len(test.want) && strings.HasPrefix(line, test.want[i]) {
				line = test.want[i]
			}
			got = append(got, line)
			if finding.Next == "" {
				t.Errorf("%s: %s has no next step", test.name, line)
			}
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

// The facts of the machine that runs this test agree with what its files say.
func TestReadThisMachine(t *testing.T) {
	dir := t.TempDir() + "/not/there/yet"
	f, err := Read(t.Context(), Config{RootDir: dir, BuiltInNetwork: true, OwnImages: true})
	if err != nil {
		t.Fatal(err)
	}
	_, noV2 := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	if v2 := noV2 == nil; v2 != (f.Cgroup.Version == 2) {
		t.Errorf("cgroup version %d, cgroup.controllers: %t", f.Cgroup.Version, v2)
	}
	if v, ok := kernelVersion(f.Kernel); !ok || v[0] < 4 {
		t.Errorf("kernel %q", f.Kernel)
	}
	if f.Disk.Path != dir || f.Disk.Size == 0 || len(f.Cgroup.Controllers) == 0 || len(f.Networks) == 0 {
		t.Errorf("facts are missing: %+v", f)
	}
	if f.Sysctls["kernel.pid_max"] < 1 {
		t.Errorf("sysctls: %v", f.Sysctls)
	}
}
