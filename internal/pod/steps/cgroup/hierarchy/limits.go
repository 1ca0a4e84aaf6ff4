package hierarchy

import "github.com/berth-run/berth/internal/base/cgroupfile"

// Limits of one cgroup. A zero field is not written.
type Limits struct {
	// Shares is the CPU time relative to siblings, 2 to 262144.
	Shares uint64
	// Quota is the CPU time in µs per Period. -1 means no limit.
	Quota int64
	// Period in µs.
	Period uint64
	// Memory in bytes.
	Memory int64
	// Pids is the largest number of processes and threads.
	Pids int64
	// Protected is the memory that the kernel spares when memory is short, on cgroup v2 only. nil is not written.
	Protected *Protection
	// HugePages has bytes by page size in bytes. nil is not written. Otherwise a missing size gets the limit 0.
	HugePages map[int64]int64
}

// Protection is in bytes (Documentation/admin-guide/cgroup-v2 of the kernel). Min is never reclaimed, Low only if
// nothing else is left.
type Protection struct{ Min, Low int64 }

// Bounds returns the limits that are read back: everything that systemd or an administrator may change. That does not
// include huge pages.
func (l Limits) Bounds() cgroupfile.Bounds {
	b := cgroupfile.Bounds{Shares: l.Shares, Quota: l.Quota, Period: l.Period, Memory: l.Memory, Pids: l.Pids}
	if l.Protected != nil {
		b.Min, b.Low = l.Protected.Min, l.Protected.Low
	}
	return b
}
