package cgroupfile

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/cgroups"

	"github.com/berth-run/berth/internal/base/cpulist"
)

// Limits of cpu.shares (kernel, Documentation/admin-guide/cgroup-v1).
const (
	MinShares = 2
	maxShares = 262144
)

const (
	// DefaultPeriod is the default period of a CPU quota.
	DefaultPeriod = 100 * time.Millisecond
	// minQuota is the smallest cpu.cfs_quota_us that the kernel accepts.
	minQuota = 1000
)

// Shares converts millicores to cpu.shares, the share of CPU time relative to siblings. One CPU is 1024.
func Shares(milli int64) uint64 {
	return uint64(max(MinShares, min(milli*1024/1000, maxShares)))
}

// Quota converts millicores to the CPU time in µs per period. 0 is no limit.
func Quota(milli int64, period time.Duration) int64 {
	if milli == 0 {
		return 0
	}
	return max(minQuota, milli*period.Microseconds()/1000)
}

// None is the value of a file without a limit.
const None = "max"

// Values are the contents of files by file name, in canonical form.
type Values map[string]string

// Bounds are the limits of a cgroup. A zero field is not checked; -1 is no limit.
type Bounds struct {
	CPUs, Mems string // as cpuset.cpus lists them
	Shares     uint64 // 2 to 262144; version 2 has them as a weight
	Quota      int64  // µs per Period
	Period     uint64 // µs
	Memory     int64  // bytes, as the next three
	High       int64  // version 2 only, as Min and Low
	Min, Low   int64
	Pids       int64
}

// Values are the file contents for these limits. A weight has several right values: see Differences.
func (b Bounds) Values(unified bool) Values {
	v := Values{}
	set := func(file, text string) {
		if text = Canonical(file, text); text != "" {
			v[file] = text
		}
	}
	set("cpuset.cpus", b.CPUs)
	set("cpuset.mems", b.Mems)
	set("pids.max", number(b.Pids))
	if !unified {
		set("cpu.shares", number(int64(b.Shares)))
		set("cpu.cfs_quota_us", number(b.Quota))
		if b.Quota > 0 {
			set("cpu.cfs_period_us", number(int64(b.Period)))
		}
		set("memory.limit_in_bytes", number(b.Memory))
		return v
	}
	if b.Shares > 0 {
		v["cpu.weight"] = strings.Join(weights(b.Shares), "|")
	}
	if b.Quota != 0 {
		period := cmp.Or(b.Period, uint64(DefaultPeriod.Microseconds()))
		set("cpu.max", number(b.Quota)+" "+strconv.FormatUint(period, 10))
	}
	set("memory.max", number(b.Memory))
	set("memory.high", number(b.High))
	set("memory.min", number(b.Min))
	set("memory.low", number(b.Low))
	return v
}

func number(n int64) string {
	switch {
	case n == 0:
		return ""
	case n < 0:
		return None
	}
	return strconv.FormatInt(n, 10)
}

// weights are the values of cpu.weight for shares. Runtimes use two formulas: an older one that maps the range
// linearly, and the one of runc 1.3.2.
func weights(shares uint64) []string {
	all := []string{strconv.FormatUint(cgroups.ConvertCPUSharesToCgroupV2Value(shares), 10)}
	if linear := strconv.FormatUint(1+((shares-2)*9999)/262142, 10); shares >= 2 && linear != all[0] {
		all = append(all, linear)
	}
	return all
}

// controllers are the controllers with files of Values.
func controllers() []string { return []string{"cpu", "cpuset", "memory", "pids"} }

// Controller is the controller that a file belongs to.
func Controller(file string) string {
	c, _, _ := strings.Cut(file, ".")
	return c
}

// Files are the files that Values may contain, on both versions. Writes to other files do not matter.
func Files() []string {
	return []string{
		"cpuset.cpus", "cpuset.mems", "cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.weight", "cpu.max",
		"memory.limit_in_bytes", "memory.max", "memory.high", "memory.min", "memory.low", "pids.max",
	}
}

// page is the unit of the kernel's memory limits, in bytes. Machines with larger pages use a multiple.
const page = 4096

// unbounded is the lowest version 1 limit that means no limit. The kernel shows no limit as its largest number of whole
// pages, which is a little below 2^63 bytes.
const unbounded = 1 << 62

// Canonical returns the content of a file in a form that can be compared: sets are sorted, no limit is None, memory is
// in whole pages. It returns a set with CPUs that no machine has as it is.
func Canonical(file, text string) string {
	text = strings.TrimSpace(text)
	switch Controller(file) {
	case "cpuset":
		if set, err := cpulist.Set(text); err == nil {
			return set.String()
		}
	case "memory", "pids":
		n, err := strconv.ParseInt(text, 10, 64)
		switch {
		case err != nil:
		case n < 0 || n >= unbounded:
			return None
		case strings.HasPrefix(file, "memory"):
			return strconv.FormatInt(n&^(page-1), 10)
		}
	case "cpu":
		quota, period, two := strings.Cut(text, " ")
		if quota == "-1" {
			quota = None
		}
		if two && quota != None { // without a quota the period does not matter
			return quota + " " + strings.TrimSpace(period)
		}
		return quota
	}
	return text
}

// Spell is the reverse of Canonical: it returns the value as the kernel accepts it.
func Spell(unified bool, value string) string {
	if value == None && !unified {
		return "-1"
	}
	return value
}

// Change is a file with another value than expected.
type Change struct{ File, Have, Want string }

func (c Change) String() string { return c.File + " is " + c.Have + ", not " + c.Want }

// Differences returns the files whose value in have differs from want, sorted by name. It skips files that have does
// not contain. If want lists several values, each of them is right.
func Differences(want, have Values) []Change {
	var all []Change
	for file, value := range want {
		current, ok := have[file]
		if ok && !slices.Contains(strings.Split(value, "|"), current) {
			first, _, _ := strings.Cut(value, "|")
			all = append(all, Change{File: file, Have: current, Want: first})
		}
	}
	slices.SortFunc(all, func(a, b Change) int { return strings.Compare(a.File, b.File) })
	return all
}

// Describe lists changes in a text for people.
func Describe(all []Change) string {
	texts := make([]string, len(all))
	for i, c := range all {
		texts[i] = c.String()
	}
	return strings.Join(texts, "; ")
}
