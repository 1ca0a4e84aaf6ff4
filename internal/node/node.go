package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// Config holds the settings for reading the machine. The zero value is a machine under its host name without
// reservations. No pod fits on it unless MaxPods is set.
type Config struct {
	// Name of the node. Default: the host name in lower case.
	Name string
	// IPs are the addresses from --node-ip, at most one of each family. An unspecified address stands for the default
	// address of its family. Default: an address that the name resolves to, or the address on the interface of the
	// default route.
	IPs []netip.Addr
	// Lookup resolves the node's name (net.Resolver.LookupNetIP). It is for nodes of a cluster, whose other nodes use
	// the same DNS. Nil: no lookup.
	Lookup func(ctx context.Context, name string) ([]netip.Addr, error)
	// Labels are added to the labels of the operating system.
	Labels map[string]string
	// MaxPods is the maximum number of pods on the node.
	MaxPods int32
	// PodsPerCore, multiplied by the number of CPUs, also limits the number of pods. 0: it does not.
	PodsPerCore int32
	Reserved    Reserved
	// Dir is a directory on the file system whose size is the node's ephemeral-storage.
	Dir string
	// NoStorage: the node has no ephemeral-storage.
	NoStorage bool
	// Host is the root below which proc, sys and etc are read. Default: /.
	Host string
	// Log receives warnings about missing facts and their replacements.
	Log *slog.Logger
}

// Facts is a snapshot of the machine's properties.
type Facts struct {
	Name string
	// Capacity holds the machine's resources.
	Capacity corev1.ResourceList
	// Allocatable is the upper limit for the requests of all pods together.
	Allocatable corev1.ResourceList
	// Usable is Capacity without the reservations, but including eviction thresholds: the limit of the cgroup of all
	// pods.
	Usable corev1.ResourceList
	Labels map[string]string
	Info   corev1.NodeSystemInfo
	// IPs has the primary address first and is never empty. Addresses follows later changes.
	IPs []netip.Addr
}

// Addresses returns the node's addresses as the Node object lists them.
func (f Facts) Addresses() []corev1.NodeAddress {
	all := make([]corev1.NodeAddress, 0, len(f.IPs)+1)
	for _, ip := range f.IPs {
		all = append(all, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip.String()})
	}
	return append(all, corev1.NodeAddress{Type: corev1.NodeHostName, Address: f.Name})
}

// Read reads the facts of the machine. It fails if the size of the memory, the name or a configured address is missing.
func Read(c Config) (Facts, error) {
	m := machine{root: filepath.Join("/", c.Host)}
	memory, err := parseMemory(m.text("proc/meminfo"))
	if err != nil {
		return Facts{}, fmt.Errorf("read %s: %w", m.path("proc/meminfo"), err)
	}
	name := strings.ToLower(strings.TrimSpace(c.Name))
	if name == "" {
		if name = strings.ToLower(m.text("proc/sys/kernel/hostname")); name == "" {
			return Facts{},
				fmt.Errorf("read %s: no host name; set one with --hostname-override",
					m.path("proc/sys/kernel/hostname"))
		}
	}
	var storage int64
	if !c.NoStorage {
		if storage, err = fileSystemSize(c.Dir); err != nil {
			return Facts{}, err
		}
	}
	cpus, err := countCPUs(m.text("sys/devices/system/cpu/online"))
	if err != nil {
		cpus = runtime.NumCPU()
		c.Log.Warn("cannot read the online CPUs, counting the CPUs of this process", "cpus", cpus, "err", err)
	}
	host, err := hostAddresses()
	if err != nil {
		return Facts{}, err
	}
	ips, err := c.nodeIPs(name, host)
	if errors.Is(err, errNoAddress) { // a machine without a network still runs pods
		ips = []netip.Addr{fallback(host)}
		c.Log.Warn("no default route, using another address of this machine", "ip", ips[0])
	} else if err != nil {
		return Facts{}, err
	}

	capacity := Capacity{
		CPUs: cpus, MemoryBytes: memory.total, StorageBytes: storage, HugePages: m.hugePages(),
		Pods: maxPods(c.MaxPods, c.PodsPerCore, cpus),
	}.Resources()
	allocatable, usable := afterReserved(capacity, c.Reserved)
	return Facts{
		Name: name, IPs: ips,
		Capacity: capacity, Allocatable: allocatable, Usable: usable,
		Labels: labels(name, c.Labels),
		Info:   m.info(memory.swap),
	}, nil
}

// machine reads files below a root, so that tests can provide their own.
type machine struct{ root string }

func (m machine) path(name string) string { return filepath.Join(m.root, name) }

// text reads a small file and trims space. It is "" if the file cannot be read.
func (m machine) text(name string) string {
	b, err := os.ReadFile(m.path(name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func (m machine) info(swap int64) corev1.NodeSystemInfo {
	id := m.text("etc/machine-id")
	if id == "" {
		id = m.text("var/lib/dbus/machine-id")
	}
	uuid := m.text("sys/class/dmi/id/product_uuid")
	if uuid == "" {
		uuid = id
	}
	info := corev1.NodeSystemInfo{
		MachineID:       id,
		SystemUUID:      uuid,
		BootID:          m.text("proc/sys/kernel/random/boot_id"),
		KernelVersion:   m.text("proc/sys/kernel/osrelease"),
		OSImage:         osImage(m.text("etc/os-release")),
		OperatingSystem: runtime.GOOS,
		Architecture:    runtime.GOARCH,
	}
	if swap > 0 {
		info.Swap = &corev1.NodeSwapStatus{Capacity: &swap}
	}
	return info
}

// hugePages returns the number of pre-allocated huge pages by page size in bytes. Sizes without pages are included.
func (m machine) hugePages() map[int64]int64 {
	entries, err := os.ReadDir(m.path("sys/kernel/mm/hugepages"))
	if err != nil {
		return nil // the kernel has no huge pages
	}
	pages := map[int64]int64{}
	for _, e := range entries {
		kib, ok := strings.CutPrefix(strings.TrimSuffix(e.Name(), "kB"), "hugepages-")
		size, err := strconv.ParseInt(kib, 10, 64)
		if !ok || err != nil {
			continue
		}
		count, err := strconv.ParseInt(m.text(filepath.Join("sys/kernel/mm/hugepages", e.Name(), "nr_hugepages")), 10,
			64)
		if err == nil {
			pages[size<<10] = count
		}
	}
	return pages
}

func fileSystemSize(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("read size of the file system at %s: %w", dir, err)
	}
	return int64(st.Blocks) * st.Frsize, nil
}
