package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/capability"
	"github.com/berth-run/berth/internal/base/netdump"
	"github.com/berth-run/berth/internal/base/packetfilter"
	"github.com/berth-run/berth/internal/base/process"
	"github.com/berth-run/berth/internal/base/sysctl"
	"github.com/berth-run/berth/internal/base/unixsocket"
)

// Config has the settings of the agent that the facts depend on.
type Config struct {
	// RootDir is the agent's root directory, which need not exist.
	RootDir   string
	PodRanges []netip.Prefix
	SwapUsed  bool
	// BuiltInNetwork and OwnImages are properties of the runtime, see Facts.
	BuiltInNetwork, OwnImages bool
}

// Read reads the facts of this machine. It leaves out what it cannot read. The error names these parts.
func Read(ctx context.Context, c Config) (Facts, error) {
	f := Facts{
		Nftables: packetfilter.Nftables(), Sysctls: map[string]int64{}, SwapUsed: c.SwapUsed,
		Clock: readClock(), PodRanges: c.PodRanges, BuiltInNetwork: c.BuiltInNetwork, OwnImages: c.OwnImages,
		Kubelets: processes("kubelet"), Missing: lacking(),
	}
	var errs []error
	f.Kernel = text("/proc/sys/kernel/osrelease")
	_, lookErr := exec.LookPath("criu")
	f.CRIU = lookErr == nil
	f.IPTables = f.Nftables || packetfilter.IPTables(ctx, "nat")
	f.Overlay = hasOverlay(f.Kernel)
	for _, s := range least {
		if value, err := strconv.ParseInt(text("/proc/sys/"+sysctl.Path(s.name)), 10, 64); err == nil {
			f.Sysctls[s.name] = value
		}
	}
	for i, line := range strings.Split(text("/proc/swaps"), "\n") {
		if fields := strings.Fields(line); i > 0 && len(fields) > 0 {
			f.Swaps = append(f.Swaps, fields[0])
		}
	}
	var err error
	if f.Cgroup, err = readCgroup(); err != nil {
		errs = append(errs, err)
	}
	if f.Disk, err = readDisk(c.RootDir); err != nil {
		errs = append(errs, err)
	}
	if f.Networks, err = readNetworks(); err != nil {
		errs = append(errs, err)
	}
	for _, socket := range []string{"/run/containerd/containerd.sock", "/run/crio/crio.sock", "/run/docker.sock",
		"/run/cri-dockerd.sock"} {
		if conn, err := unixsocket.Dial(ctx, socket); err == nil {
			f.Runtimes = append(f.Runtimes, socket)
			_ = conn.Close()
		}
	}
	return f, errors.Join(errs...)
}

// text returns the content of a file without the last line break, or "".
func text(path string) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(content))
}

// hasOverlay reports whether the kernel has overlayfs built in or loaded, or can load it.
func hasOverlay(release string) bool {
	for line := range strings.Lines(text("/proc/filesystems")) {
		if strings.TrimSpace(strings.TrimPrefix(line, "nodev")) == "overlay" {
			return true
		}
	}
	found, err := filepath.Glob("/lib/modules/" + release + "/kernel/fs/overlayfs/overlay.ko*")
	return err == nil && len(found) > 0
}

func readCgroup() (c Cgroup, err error) {
	const root = "/sys/fs/cgroup"
	var s unix.Statfs_t
	if err := unix.Statfs(root, &s); err != nil {
		return c, fmt.Errorf("read the cgroup file system: statfs %s: %w", root, err)
	}
	switch {
	case s.Type == unix.CGROUP2_SUPER_MAGIC:
		return Cgroup{Version: 2, Controllers: strings.Fields(text(root + "/cgroup.controllers"))}, nil
	case s.Type != unix.TMPFS_MAGIC:
		return c, nil
	}
	c.Version = 1
	for line := range strings.Lines(text("/proc/cgroups")) { // name, hierarchy, number of cgroups, enabled
		if fields := strings.Fields(line); len(fields) == 4 && fields[3] == "1" {
			c.Controllers = append(c.Controllers, fields[0])
		}
	}
	return c, nil
}

// kinds are the types of file systems that a check knows (statfs(2)).
var kinds = map[int64]string{
	unix.TMPFS_MAGIC: "tmpfs", unix.RAMFS_MAGIC: "ramfs", unix.NFS_SUPER_MAGIC: "nfs", unix.SMB_SUPER_MAGIC: "cifs",
	unix.SMB2_SUPER_MAGIC: "cifs", unix.FUSE_SUPER_MAGIC: "fuse", unix.V9FS_MAGIC: "9p",
}

// readDisk reads the file system of a directory. If the directory does not exist, it reads the file system of its
// parent.
func readDisk(dir string) (d Disk, err error) {
	var s unix.Statfs_t
	for at := dir; ; at = filepath.Dir(at) {
		if err = unix.Statfs(at, &s); !errors.Is(err, fs.ErrNotExist) || at == "/" {
			break
		}
	}
	if err != nil {
		return d, fmt.Errorf("read the file system of %s: %w", dir, err)
	}
	size := uint64(s.Bsize)
	return Disk{Path: dir, Type: kinds[s.Type], Size: s.Blocks * size, Free: s.Bavail * size, Inodes: s.Files,
		InodesOK: s.Ffree, ReadOnly: s.Flags&unix.ST_RDONLY != 0}, nil
}

func readClock() Clock {
	state, err := unix.Adjtimex(&unix.Timex{})
	return Clock{Now: time.Now(), Synchronized: err != nil || state != unix.TIME_ERROR}
}

// readNetworks returns the routes of the machine, without the routes of Berth's own bridges.
func readNetworks() (all []Network, err error) {
	routes, err := netdump.Complete(func() ([]netlink.Route, error) {
		return netlink.RouteList(nil, netlink.FAMILY_ALL)
	})
	if err != nil {
		return nil, fmt.Errorf("read the routes: %w", err)
	}
	for _, r := range routes {
		if r.Dst == nil {
			continue
		}
		device, err := net.InterfaceByIndex(r.LinkIndex)
		if err != nil || strings.HasPrefix(device.Name, "berth") {
			continue
		}
		ip, ok := netip.AddrFromSlice(r.Dst.IP)
		bits, _ := r.Dst.Mask.Size()
		if ok {
			all = append(all, Network{device.Name, netip.PrefixFrom(ip.Unmap(), bits)})
		}
	}
	return all, nil
}

// processes returns the IDs of the processes with a name.
func processes(name string) (pids []int) {
	pids, _ = process.IDs() // the others have no such process
	pids = slices.DeleteFunc(pids, func(pid int) bool { return text(process.Path(pid, "comm")) != name })
	slices.Sort(pids)
	return pids
}

// lacking returns the capabilities that an agent needs and this process lacks.
func lacking() []string {
	own, err := capability.Effective()
	if err != nil {
		return nil
	}
	return own.Lacking()
}
