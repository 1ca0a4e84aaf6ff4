package container

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/node"
	"github.com/berth-run/berth/internal/pod/steps/container/render"
)

// ReadNode returns the properties of this node that the configurations of containers depend on. root is the host's file
// system, "/". quota exempts containers with exclusive CPUs from CPU quotas, unless the configuration throttles them.
func ReadNode(root string, c *config.Config, facts node.Facts, quota render.Quota) (render.Node, error) {
	n := nodeOf(c, facts, host(root).exists("sys/fs/cgroup/cgroup.controllers"))
	if !c.Node.Enforce.ThrottleExclusive {
		n.Quota = quota
	}
	return ReadHost(root, n)
}

// ReadHost adds to n the kernel's features for containers: huge page sizes, swap accounting, SELinux, the paths to
// mask, and the lowest oom_score_adj that may be set. root is the host's file system, "/". n.CgroupV2 must be set
// already.
func ReadHost(root string, n render.Node) (render.Node, error) {
	h := host(root)
	var err error
	if n.HugePages, err = h.hugePages(); err != nil {
		return n, err
	}
	if n.SwapController, err = h.swapController(n.CgroupV2); err != nil {
		return n, err
	}
	if n.MinOOMScoreAdj, err = h.minOOMScoreAdj(); err != nil {
		return n, err
	}
	n.SELinux = h.exists("sys/fs/selinux/enforce")
	for _, path := range h.glob("sys/devices/system/cpu/cpu[0-9]*/thermal_throttle") {
		n.MaskedPaths = append(n.MaskedPaths, "/"+path)
	}
	return n, nil
}

// host is the root of a file system.
type host string

func (h host) path(name string) string { return filepath.Join(string(h), name) }

func (h host) exists(name string) bool {
	_, err := os.Stat(h.path(name))
	return err == nil
}

// glob returns the matches relative to the root. The pattern must be valid.
func (h host) glob(pattern string) []string {
	matches, _ := filepath.Glob(h.path(pattern))
	for i, m := range matches {
		matches[i] = strings.TrimPrefix(strings.TrimPrefix(m, string(h)), "/")
	}
	return matches
}

// hugePages returns the machine's page sizes as the hugetlb controller spells them.
func (h host) hugePages() ([]string, error) {
	entries, err := os.ReadDir(h.path("sys/kernel/mm/hugepages"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list huge page sizes: %w", err)
	}
	var sizes []int64
	for _, e := range entries {
		text := strings.TrimSuffix(strings.TrimPrefix(e.Name(), "hugepages-"), "kB")
		kib, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("list huge page sizes: %q is not a size", e.Name())
		}
		sizes = append(sizes, kib<<10)
	}
	slices.Sort(sizes)
	names := make([]string, len(sizes))
	for i, size := range sizes {
		names[i] = render.PageSize(size)
	}
	return names, nil
}

// swapController looks for the file that limits swap. On cgroup v2 the root cgroup has no such file, so it looks in
// this process's cgroup.
func (h host) swapController(v2 bool) (bool, error) {
	if !v2 {
		return h.exists("sys/fs/cgroup/memory/memory.memsw.limit_in_bytes"), nil
	}
	raw, err := os.ReadFile(h.path("proc/self/cgroup"))
	if err != nil {
		return false, fmt.Errorf("find own cgroup: %w", err)
	}
	for line := range strings.Lines(string(raw)) {
		if own, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return h.exists(filepath.Join("sys/fs/cgroup", own, "memory.swap.max")), nil
		}
	}
	return false, nil
}

// minOOMScoreAdj returns the lowest oom_score_adj that this process may set, or nil if it may set any value. Without
// CAP_SYS_RESOURCE that is its own value (proc(5)).
func (h host) minOOMScoreAdj() (*int64, error) {
	status, err := os.ReadFile(h.path("proc/self/status"))
	if err != nil {
		return nil, fmt.Errorf("find own capabilities: %w", err)
	}
	for line := range strings.Lines(string(status)) {
		text, ok := strings.CutPrefix(line, "CapEff:")
		if !ok {
			continue
		}
		caps, err := strconv.ParseUint(strings.TrimSpace(text), 16, 64)
		if err != nil {
			return nil, fmt.Errorf("find own capabilities: %w", err)
		}
		if caps&(1<<unix.CAP_SYS_RESOURCE) != 0 {
			return nil, nil
		}
	}
	raw, err := os.ReadFile(h.path("proc/self/oom_score_adj"))
	if err != nil {
		return nil, fmt.Errorf("find own oom_score_adj: %w", err)
	}
	own, err := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("find own oom_score_adj: %w", err)
	}
	return &own, nil
}
