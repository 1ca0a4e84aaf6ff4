package cgroupfile

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/cgroups"
	"k8s.io/utils/cpuset"
)

// Bounds of cpu.shares, Documentation/admin-guide/cgroup-v1 of the kernel.
const (
	MinShares = 2
	maxShares = 262144
)

const (
	// DefaultPeriod is that of a CPU quota.
	DefaultPeriod = 100 * time.Millisecond
	// minQuota is the smallest cpu.cfs_quota_us that the kernel takes.
	minQuota = 1000
)

// Shares turns CPU in thousandths into cpu.shares, the CPU time relative to
// siblings: 1024 for one CPU.
func Shares(milli int64) uint64 {
	return uint64(max(MinShares, min(milli*1024/1000, maxShares)))
}

// Quota turns CPU in thousandths into the CPU time in µs per period; 0 is no
// limit.
func Quota(milli int64, period time.Duration) int64 {
	if milli == 0 {
		return 0
	}
	return max(minQuota, milli*period.Microseconds()/1000)
}

// None is what a file says that sets no bound.
const None = "max"

// Values are the contents of files by name, in canonical form.
type Values map[string]string

// Bounds of a cgroup. A zero field is not looked at; -1 is no bound.
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

// Values are the bounds as the files say them. Weights are a matter of taste: see
// Differences.
func (b Bounds) Values(unified bool) Values {
	v := Values{}
	set := func(file, text string) {
		if text != "" {
			v[file] = Canonical(file, text)
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

// weights are what shares become on version 2: runtimes have two formulas, an
// older one that maps the range linearly and that of runc 1.3.2.
func weights(shares uint64) []string {
	all := []string{strconv.FormatUint(cgroups.ConvertCPUSharesToCgroupV2Value(shares), 10)}
	if linear := strconv.FormatUint(1+((shares-2)*9999)/262142, 10); shares >= 2 && linear != all[0] {
		all = append(all, linear)
	}
	return all
}

// controllers are those with files of Values.
func controllers() []string { return []string{"cpu", "cpuset", "memory", "pids"} }

// Controller is the one that a file belongs to.
func Controller(file string) string {
	c, _, _ := strings.Cut(file, ".")
	return c
}

// Files are those that Values may have, on both versions. A write to another is
// nobody's concern.
func Files() []string {
	return []string{
		"cpuset.cpus", "cpuset.mems", "cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.weight", "cpu.max",
		"memory.limit_in_bytes", "memory.max", "memory.high", "memory.min", "memory.low", "pids.max",
	}
}

// page is the unit in which the kernel keeps memory bounds, on all machines but
// those with larger pages, where it is a multiple.
const page = 4096

// unbounded is where a number of version 1 means no bound: the largest that the
// kernel can count pages for, less what rounding takes.
const unbounded = 1 << 62

// Canonical spells the content of a file in the one way that can be compared:
// sets sorted, no bound as None, memory in whole pages.
func Canonical(file, text string) string {
	text = strings.TrimSpace(text)
	switch Controller(file) {
	case "cpuset":
		if set, err := cpuset.Parse(text); err == nil {
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

// Spell is the other way round: a canonical value as the kernel takes it.
func Spell(unified bool, value string) string {
	if value == None && !unified {
		return "-1"
	}
	return value
}

// Change is a file that does not say what it should.
type Change struct{ File, Have, Want string }

func (c Change) String() string { return c.File + " is " + c.Have + ", not " + c.Want }

// Differences lists the files of want that say something else in have, by name.
// Files that have lacks are not there. Where want gives several answers, each
// of them is right.
func Differences(want, have Values) []Change {
	var all []Change
	for file, value := range want {
		is, ok := have[file]
		if ok && !slices.Contains(strings.Split(value, "|"), is) {
			first, _, _ := strings.Cut(value, "|")
			all = append(all, Change{File: file, Have: is, Want: first})
		}
	}
	slices.SortFunc(all, func(a, b Change) int { return strings.Compare(a.File, b.File) })
	return all
}

// Describe lists changes for people.
func Describe(all []Change) string {
	texts := make([]string, len(all))
	for i, c := range all {
		texts[i] = c.String()
	}
	return strings.Join(texts, "; ")
}
