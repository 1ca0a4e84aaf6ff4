package doctor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// check looks at one part of the machine.
type check struct {
	name string
	look func(Facts) []Finding
}

// checks lists all checks, in the order of their output.
func checks() []check {
	return []check{
		{"kernel", kernel}, {"cgroups", cgroups}, {"modules", modules}, {"sysctls", sysctls}, {"swap", swap},
		{"disk", disk}, {"clock", clock}, {"networks", networks}, {"runtimes", runtimes},
		{"capabilities", capabilities}, {"checkpoints", checkpoints},
	}
}

// Checks returns the names of all checks.
func Checks() (names []string) {
	for _, c := range checks() {
		names = append(names, c.name)
	}
	return names
}

// Examine returns the findings of all checks.
func Examine(f Facts) []Finding {
	all := []Finding{}
	for _, c := range checks() {
		for _, finding := range c.look(f) {
			finding.Check = c.name
			all = append(all, finding)
		}
	}
	return all
}

// one returns a finding alone.
func one(level Level, next, format string, args ...any) []Finding {
	return []Finding{{Level: level, Message: fmt.Sprintf(format, args...), Next: next}}
}

// The oldest kernels: pidfd_open(2) and clone3(2) need 5.3, idmapped mounts of the usual file systems 5.19, and those
// of tmpfs, which pods with a user namespace get, 6.3.
var (
	oldestKernel = [2]int{5, 3}
	usernsKernel = [2]int{6, 3}
)

func kernel(f Facts) []Finding {
	version, ok := kernelVersion(f.Kernel)
	switch {
	case !ok:
		return nil
	case older(version, oldestKernel):
		return one(Problem, "install a kernel of version 5.3 or later; 6.3 has everything",
			"kernel %s is older than 5.3", f.Kernel)
	case older(version, usernsKernel):
		return one(Note, "install a kernel of version 6.3 or later if pods need hostUsers: false",
			"kernel %s is older than 6.3: pods with user namespaces may not start", f.Kernel)
	}
	return nil
}

// kernelVersion returns the first two numbers of a release.
func kernelVersion(release string) (v [2]int, ok bool) {
	major, rest, _ := strings.Cut(release, ".")
	minor := rest
	if end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
		minor = rest[:end]
	}
	var err, err2 error
	v[0], err = strconv.Atoi(major)
	v[1], err2 = strconv.Atoi(minor)
	return v, err == nil && err2 == nil
}

func older(a, b [2]int) bool { return slices.Compare(a[:], b[:]) < 0 }

func cgroups(f Facts) (all []Finding) {
	switch f.Cgroup.Version {
	case 0:
		return one(Problem, "mount cgroup v2: mount -t cgroup2 none /sys/fs/cgroup",
			"no cgroup file system is mounted at /sys/fs/cgroup")
	case 1:
		all = one(Note, "boot with systemd.unified_cgroup_hierarchy=1 for cgroup v2",
			"cgroup v1: pods have no memory.high, no io limits and no group OOM kill")
	}
	for _, c := range []string{"cpu", "cpuset", "memory", "pids"} {
		if slices.Contains(f.Cgroup.Controllers, c) {
			continue
		}
		next := "enable CONFIG_CGROUPS and the controller in the kernel"
		if c == "memory" {
			next = "boot with cgroup_enable=memory"
		}
		all = append(all, one(Problem, next, "the cgroup controller %s is missing: its limits cannot be set", c)...)
	}
	return all
}

func modules(f Facts) (all []Finding) {
	const nftables = "load the module: modprobe nf_tables, and name it in /etc/modules-load.d/berth.conf"
	if !f.Overlay {
		all = one(Warning, "load the module: modprobe overlay, and name it in /etc/modules-load.d/berth.conf",
			"the kernel has no overlayfs: every container gets a full copy of its image")
	}
	switch {
	case f.Nftables:
	case f.BuiltInNetwork:
		all = append(all, one(Problem, nftables,
			"the kernel has no nftables: only pods of a CNI configuration have a network and host ports")...)
	case f.IPTables:
		all = append(all, one(Note, nftables,
			"the kernel has no nftables: the rule for loopback addresses uses iptables")...)
	default:
		all = append(all, one(Problem, nftables,
			"the kernel has neither nftables nor iptables: pods may reach loopback addresses of the machine")...)
	}
	return all
}

// least has the sysctls with their least useful values. A pod costs a few inotify instances, and each log that is
// followed costs one.
var least = []struct {
	name string
	min  int64
	why  string
}{
	{"fs.inotify.max_user_instances", 512, "programs in pods that watch files fail with \"too many open files\""},
	{"fs.inotify.max_user_watches", 65536, "programs in pods that watch files fail with \"no space left on device\""},
	{"kernel.pid_max", 65536, "all pods together run out of process IDs"},
	{"user.max_user_namespaces", 1, "pods with hostUsers: false cannot start"},
}

func sysctls(f Facts) (all []Finding) {
	for _, s := range least {
		if is, known := f.Sysctls[s.name]; known && is < s.min {
			want := max(s.min, 1024)
			all = append(all, one(Warning,
				fmt.Sprintf("sysctl -w %s=%d, and keep it in /etc/sysctl.d/berth.conf", s.name, want),
				"%s is %d: %s", s.name, is, s.why)...)
		}
	}
	return all
}

func swap(f Facts) []Finding {
	if len(f.Swaps) == 0 || f.SwapUsed {
		return nil
	}
	return one(Note, "turn it off with swapoff -a and in /etc/fstab, or set memorySwap.swapBehavior: LimitedSwap",
		"swap is on (%s), and pods do not use it: the machine may swap while pods are killed at their limits",
		strings.Join(f.Swaps, ", "))
}

const (
	gib = 1 << 30
	// minFree is the least free space in bytes: one large image with its unpacked layers.
	minFree = 2 * gib
)

func disk(f Facts) (all []Finding) {
	d := f.Disk
	if d.ReadOnly {
		all = one(Problem, "mount it for writing, or choose another --root-dir", "the file system of %s is read-only",
			d.Path)
	}
	switch d.Type {
	case "tmpfs", "ramfs":
		all = append(all, one(Warning, "choose a --root-dir on a disk",
			"%s is in memory (%s): a reboot loses all pods, volumes and images", d.Path, d.Type)...)
	case "nfs", "cifs", "fuse", "9p":
		all = append(all, one(Problem, "choose a --root-dir on a local disk",
			"%s is on a network file system (%s), which cannot hold the layers of images", d.Path, d.Type)...)
	}
	if d.Free < minFree || d.Free < d.Size/10 {
		all = append(all, one(Warning, `free space there, also with "berth image prune", or choose another --root-dir`,
			"%s has %.1f of %.1f GiB free: images and logs may fill it", d.Path, float64(d.Free)/gib,
			float64(d.Size)/gib)...)
	}
	if d.Inodes > 0 && d.InodesOK < d.Inodes/20 {
		all = append(all, one(Warning, "remove small files there, or choose another --root-dir",
			"%s has %d of %d inodes free", d.Path, d.InodesOK, d.Inodes)...)
	}
	return all
}

// oldestYear is before every release of Berth. A clock without a battery starts in 1970.
const oldestYear = 2026

func clock(f Facts) []Finding {
	const next = "run a time service, such as systemd-timesyncd or chrony"
	switch {
	case f.Clock.Now.Year() < oldestYear:
		return one(Problem, next, "the clock shows %s: certificates of registries are not valid yet",
			f.Clock.Now.UTC().Format("2006-01-02"))
	case !f.Clock.Synchronized:
		return one(Note, next, "the kernel's clock follows no time source: times of pods and logs may drift")
	}
	return nil
}

func networks(f Facts) (all []Finding) {
	for _, pods := range f.PodRanges {
		for _, n := range f.Networks {
			if n.Prefix.Bits() > 0 && n.Prefix.Overlaps(pods) {
				all = append(all, one(Problem, "set podCIDR to free ranges, or change that network",
					"pod addresses %s overlap with %s of %s: one of the two is unreachable", pods, n.Prefix,
					n.Device)...)
			}
		}
	}
	return all
}

func runtimes(f Facts) (all []Finding) {
	for _, pid := range f.Kubelets {
		all = append(all, one(Problem,
			"stop it (systemctl disable --now kubelet); docs/takeover.md keeps its pods running",
			"a kubelet runs here (pid %d): it ends pods that it does not know", pid)...)
	}
	if f.OwnImages && len(f.Runtimes) > 0 {
		all = append(all, one(Note, "set containerRuntimeEndpoint to use another one",
			"other container runtimes answer at %s: their images and containers are apart from Berth's",
			strings.Join(f.Runtimes, ", "))...)
	}
	return all
}

func capabilities(f Facts) []Finding {
	if len(f.Missing) == 0 {
		return nil
	}
	return one(Problem, "run as root outside of containers, or add the capabilities",
		"this process lacks %s", strings.Join(f.Missing, ", "))
}

func checkpoints(f Facts) []Finding {
	if f.CRIU {
		return nil
	}
	return one(Note, "install the package criu if you need them",
		"the program criu is not in PATH: berth checkpoint, berth restore and /checkpoint do not work")
}
