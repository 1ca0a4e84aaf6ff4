package history

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/node/stats/stall"
)

// reader reads the counters of the kernel.
type reader struct {
	host string // below it proc and sys are mounted
	disk string // a directory on the file system to measure
	// disks says for each block device whether it is a disk. Partitions and devices on top of disks are not: their
	// bytes would count twice.
	disks map[string]bool
}

// sector is the unit of /proc/diskstats, in bytes (Documentation/admin-guide/iostats.rst).
const sector = 512

// ticks is USER_HZ, the unit of /proc/stat. It is 100 on every architecture that Berth runs on.
const ticks = 100

func (r *reader) path(parts ...string) string {
	return filepath.Join(append([]string{r.host}, parts...)...)
}

// read returns the counters at a time.
func (r *reader) read(at time.Time) counters {
	c := counters{at: at, busy: unknown, now: [disk + 1]int64{memory: unknown, disk: unknown}}
	if text, err := os.ReadFile(r.path("proc/stat")); err == nil {
		c.busy = busy(text)
	}
	if text, err := os.ReadFile(r.path("proc/meminfo")); err == nil {
		c.now[memory] = used(text)
	}
	var fs unix.Statfs_t
	if unix.Statfs(r.disk, &fs) == nil {
		c.now[disk] = int64(fs.Blocks-fs.Bfree) * fs.Bsize
	}
	c.read, c.wrote = r.transferred()
	for i, file := range []string{"cpu", "memory", "io"} {
		some, full := -1.0, -1.0
		if s := stall.Read(r.path("proc/pressure", file)); s != nil {
			some, full = float64(s.Some.Total)/1e6, float64(s.Full.Total)/1e6
		}
		if i == 0 {
			c.stall[0] = some // the machine as a whole has no full stall for CPU
			continue
		}
		c.stall[2*i-1], c.stall[2*i] = some, full
	}
	return c
}

// busy returns the time of all CPUs that was neither idle nor waiting for a disk, in seconds (proc_stat(5)).
func busy(stat []byte) float64 {
	line, _, _ := bytes.Cut(stat, []byte("\n"))
	columns := bytes.Fields(line)
	const user, idle, iowait, guest = 1, 4, 5, 9 // guest time is a part of user time
	if len(columns) < guest {
		return unknown
	}
	sum := 0.0
	for i := user; i < min(guest, len(columns)); i++ {
		if i != idle && i != iowait {
			sum += number(columns[i])
		}
	}
	return sum / ticks
}

// used returns MemTotal without MemAvailable, in bytes (proc_meminfo(5)).
func used(meminfo []byte) int64 {
	total, available := int64(-1), int64(-1)
	for line := range bytes.Lines(meminfo) {
		name, rest, _ := bytes.Cut(line, []byte(":"))
		value := bytes.TrimSuffix(bytes.TrimSpace(rest), []byte(" kB"))
		switch string(name) {
		case "MemTotal":
			total = int64(number(value)) << 10
		case "MemAvailable":
			available = int64(number(value)) << 10
		}
		if total >= 0 && available >= 0 {
			return total - available
		}
	}
	return unknown
}

// transferred returns the bytes that all disks have read and written.
func (r *reader) transferred() (read, wrote float64) {
	text, err := os.ReadFile(r.path("proc/diskstats"))
	if err != nil {
		return unknown, unknown
	}
	const name, sectorsRead, sectorsWritten = 2, 5, 9
	for line := range bytes.Lines(text) {
		columns := bytes.Fields(line)
		if len(columns) > sectorsWritten && r.isDisk(string(columns[name])) {
			read += number(columns[sectorsRead]) * sector
			wrote += number(columns[sectorsWritten]) * sector
		}
	}
	return read, wrote
}

// isDisk reports whether a block device is a disk: it has hardware, or a driver that acts as hardware, behind it.
func (r *reader) isDisk(name string) bool {
	known, ok := r.disks[name]
	if !ok {
		_, err := os.Stat(r.path("sys/block", name, "device"))
		known = err == nil
		r.disks[name] = known
	}
	return known
}

func number(text []byte) float64 {
	n, err := strconv.ParseFloat(string(text), 64)
	if err != nil {
		return 0
	}
	return n
}
