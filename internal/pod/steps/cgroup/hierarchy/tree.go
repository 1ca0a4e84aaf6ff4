package hierarchy

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/cgroups"
	cgfs "github.com/opencontainers/cgroups/fs"
	"github.com/opencontainers/cgroups/fs2"
	"github.com/opencontainers/cgroups/manager"
	"golang.org/x/sys/unix"
)

// Driver decides who makes the cgroups: the agent through the file system, or systemd over D-Bus. The runtime must use
// the same driver.
type Driver string

// The drivers have the names of the CRI and of KubeletConfiguration.
const (
	Cgroupfs Driver = "cgroupfs"
	Systemd  Driver = "systemd"
)

// unifiedMount is where cgroup v2 is mounted on a host without v1.
const unifiedMount = "/sys/fs/cgroup"

// Tree is the cgroup file system of this host.
type Tree struct {
	driver  Driver
	unified bool // version 2 only
	// roots are the mount points by controller; on version 2 there is one, "".
	roots       map[string]string
	controllers map[string]bool
}

// Open detects the cgroup versions and controllers of the host.
func Open(driver Driver, log *slog.Logger) (*Tree, error) {
	t := &Tree{driver: driver, unified: cgroups.IsCgroup2UnifiedMode(), controllers: map[string]bool{}}
	if t.unified {
		t.roots = map[string]string{"": unifiedMount}
		available, err := cgroups.ReadFile(unifiedMount, "cgroup.controllers")
		if err != nil {
			return nil, fmt.Errorf("read the controllers of cgroup version 2: %w", err)
		}
		for c := range strings.FieldsSeq(available) {
			t.controllers[c] = true
		}
	} else {
		m, err := cgfs.NewManager(&cgroups.Cgroup{Path: "/", Resources: &cgroups.Resources{SkipDevices: true}}, nil)
		if err != nil {
			return nil, fmt.Errorf("find the mounts of cgroup version 1: %w", err)
		}
		t.roots = m.GetPaths()
		for c, dir := range t.roots {
			if err := unix.Access(dir, unix.W_OK); err != nil {
				log.Warn("cgroup controller is not writable, leaving it out", "controller", c, "directory",
					dir, "err", err)
				delete(t.roots, c)
				continue
			}
			t.controllers[c] = true
		}
		if len(t.roots) == 0 {
			return nil, errors.New("no cgroup controller is mounted writable")
		}
	}
	for _, c := range []string{"cpu", "memory", "pids", "hugetlb"} {
		if !t.controllers[c] {
			log.Warn("cgroup controller is missing, its limits are not set for pods", "controller", c)
		}
	}
	return t, nil
}

// Paths returns the directories of a cgroup by controller.
func (t *Tree) Paths(n Name) (map[string]string, error) {
	below := n.Cgroupfs()
	if t.driver == Systemd {
		var err error
		if below, err = n.Systemd(); err != nil {
			return nil, fmt.Errorf("name the slice: %w", err)
		}
	}
	p := make(map[string]string, len(t.roots))
	for c, root := range t.roots {
		p[c] = filepath.Join(root, below)
	}
	return p, nil
}

func (t *Tree) manager(n Name, r *cgroups.Resources) (cgroups.Manager, error) {
	paths, err := t.Paths(n)
	if err != nil {
		return nil, err
	}
	switch {
	case t.driver == Systemd:
		slice, err := n.Systemd()
		if err != nil {
			return nil, fmt.Errorf("name the slice: %w", err)
		}
		parent := path.Base(path.Dir(slice))
		if parent == "/" {
			parent = "-.slice"
		}
		return manager.NewWithPaths(&cgroups.Cgroup{Name: path.Base(slice), Parent: parent, Systemd: true,
			Resources: r}, paths)
	case t.unified:
		return fs2.NewManager(&cgroups.Cgroup{Path: n.Cgroupfs(), Resources: r}, paths[""])
	}
	return cgfs.NewManager(&cgroups.Cgroup{Path: n.Cgroupfs(), Resources: r}, paths)
}

// Unified reports whether the host uses only cgroup v2.
func (t *Tree) Unified() bool { return t.unified }

// Has reports whether the host has a controller.
func (t *Tree) Has(controller string) bool { return t.controllers[controller] }

// Exists reports whether the cgroup exists in any controller.
func (t *Tree) Exists(n Name) bool {
	paths, err := t.Paths(n)
	if err != nil {
		return false
	}
	for _, dir := range paths {
		if unix.Access(dir, unix.F_OK) == nil {
			return true
		}
	}
	return false
}

// Complete reports whether the cgroup exists in every controller that apply makes it in. The devices controller has no
// limits for pods.
func (t *Tree) Complete(n Name) bool {
	paths, err := t.Paths(n)
	if err != nil {
		return false
	}
	for controller, dir := range paths {
		if controller != "devices" && unix.Access(dir, unix.F_OK) != nil {
			return false
		}
	}
	return true
}

// Apply makes the cgroup if necessary, and sets its limits.
func (t *Tree) Apply(n Name, l Limits) error {
	m, err := t.manager(n, t.resources(l))
	if err != nil {
		return fmt.Errorf("open cgroup %s: %w", n.Cgroupfs(), err)
	}
	if err := m.Apply(-1); err != nil {
		return fmt.Errorf("make cgroup %s: %w", n.Cgroupfs(), err)
	}
	return t.Set(n, l)
}

// Set changes the limits of an existing cgroup.
func (t *Tree) Set(n Name, l Limits) error {
	r := t.resources(l)
	m, err := t.manager(n, r)
	if err != nil {
		return fmt.Errorf("open cgroup %s: %w", n.Cgroupfs(), err)
	}
	if err := m.Set(r); err != nil {
		return fmt.Errorf("set limits of cgroup %s: %w", n.Cgroupfs(), err)
	}
	return nil
}

// resources converts limits to the type of the cgroup library, for the controllers that the host has.
func (t *Tree) resources(l Limits) *cgroups.Resources {
	r := &cgroups.Resources{SkipDevices: true, SkipFreezeOnSet: true}
	if t.controllers["cpu"] {
		r.CpuQuota, r.CpuPeriod = l.Quota, l.Period
		if t.unified {
			r.CpuWeight = cgroups.ConvertCPUSharesToCgroupV2Value(l.Shares)
		} else {
			r.CpuShares = l.Shares
		}
	}
	if t.controllers["memory"] {
		r.Memory = l.Memory
		if l.Protected != nil && t.unified {
			r.Unified = map[string]string{
				"memory.min": strconv.FormatInt(l.Protected.Min, 10),
				"memory.low": strconv.FormatInt(l.Protected.Low, 10),
			}
		}
	}
	if t.controllers["pids"] && l.Pids > 0 {
		r.PidsLimit = &l.Pids
	}
	if t.controllers["hugetlb"] && l.HugePages != nil {
		r.HugetlbLimit = hugePages(l.HugePages, cgroups.HugePageSizes())
	}
	return r
}

// hugePages returns a limit for every page size of the host, named as hugetlb names them.
func hugePages(limits map[int64]int64, host []string) []*cgroups.HugepageLimit {
	byName := map[string]int64{}
	for size, limit := range limits {
		byName[hugetlbSize(size)] = limit
	}
	all := make([]*cgroups.HugepageLimit, 0, len(host))
	for _, name := range slices.Sorted(slices.Values(host)) {
		all = append(all, &cgroups.HugepageLimit{Pagesize: name, Limit: uint64(byName[name])})
	}
	return all
}

// hugetlbSize formats a page size as in hugetlb.2MB.max.
func hugetlbSize(size int64) string {
	for _, u := range []struct {
		shift int
		unit  string
	}{{30, "GB"}, {20, "MB"}} {
		if size>>u.shift > 0 {
			return fmt.Sprintf("%d%s", size>>u.shift, u.unit)
		}
	}
	return fmt.Sprintf("%dKB", size>>10)
}

// Remove removes a cgroup without processes.
func (t *Tree) Remove(n Name) error {
	m, err := t.manager(n, t.resources(Limits{}))
	if err != nil {
		return fmt.Errorf("open cgroup %s: %w", n.Cgroupfs(), err)
	}
	if err := m.Destroy(); err != nil {
		return fmt.Errorf("remove cgroup %s: %w", n.Cgroupfs(), err)
	}
	return nil
}

// pids returns the processes in a cgroup and below it.
func (t *Tree) pids(n Name) ([]int, error) {
	paths, err := t.Paths(n)
	if err != nil {
		return nil, err
	}
	found := map[int]bool{}
	for _, dir := range paths {
		pids, err := cgroups.GetAllPids(dir)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list processes of cgroup %s: %w", dir, err)
		}
		for _, pid := range pids {
			if pid > 0 { // 0 is a process in another PID namespace
				found[pid] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// Children returns the names of the directories below a cgroup, in any controller.
func (t *Tree) Children(n Name) ([]string, error) {
	paths, err := t.Paths(n)
	if err != nil {
		return nil, err
	}
	found := map[string]bool{}
	for _, dir := range paths {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("list cgroups: %w", err)
		}
		for _, e := range entries {
			if e.IsDir() {
				found[e.Name()] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found)), nil
}
