package hierarchy

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/opencontainers/cgroups"

	"github.com/berth-run/berth/internal/base/cgroupfile"
)

// At returns a cgroup and its path below the hierarchy.
func (t *Tree) At(n Name) (g cgroupfile.Group, path string, err error) {
	path = n.Cgroupfs()
	if t.driver == Systemd && len(n) > 0 {
		if path, err = n.Systemd(); err != nil {
			return g, "", fmt.Errorf("name the slice: %w", err)
		}
	}
	g, err = t.Group(n)
	return g, path, err
}

// Group returns the directories of a cgroup, by controller.
func (t *Tree) Group(n Name) (cgroupfile.Group, error) {
	paths, err := t.Paths(n)
	return cgroupfile.Group{Unified: t.unified, Dirs: paths}, err
}

// Limits reads the current quota and memory limit of a cgroup.
func (t *Tree) Limits(n Name) (Limits, error) {
	paths, err := t.Paths(n)
	if err != nil {
		return Limits{}, err
	}
	l := Limits{Quota: -1, Memory: -1}
	if t.controllers["cpu"] {
		if l.Quota, l.Period, err = t.quota(paths); err != nil {
			return l, err
		}
	}
	if t.controllers["memory"] {
		dir, file := paths["memory"], "memory.limit_in_bytes"
		if t.unified {
			dir, file = paths[""], "memory.max"
		}
		if l.Memory, err = number(dir, file); err != nil {
			return l, err
		}
	}
	return l, nil
}

func (t *Tree) quota(paths map[string]string) (quota int64, period uint64, err error) {
	if !t.unified {
		if quota, err = number(paths["cpu"], "cpu.cfs_quota_us"); err != nil {
			return 0, 0, err
		}
		p, err := number(paths["cpu"], "cpu.cfs_period_us")
		return quota, uint64(p), err
	}
	text, err := cgroups.ReadFile(paths[""], "cpu.max")
	if err != nil {
		return 0, 0, err
	}
	amount, per, _ := strings.Cut(strings.TrimSpace(text), " ")
	if quota, err = parseLimit(amount); err != nil {
		return 0, 0, err
	}
	period, err = strconv.ParseUint(per, 10, 64)
	return quota, period, err
}

func number(dir, file string) (int64, error) {
	text, err := cgroups.ReadFile(dir, file)
	if err != nil {
		return 0, err
	}
	return parseLimit(strings.TrimSpace(text))
}

// parseLimit reads a limit. On cgroup v2, "max" means none.
func parseLimit(text string) (int64, error) {
	if text == "max" {
		return -1, nil
	}
	return strconv.ParseInt(text, 10, 64)
}
