package runtime

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// dropReadOnlyPages gives back the pages of this executable's read-only data
// that are in memory: writing the embedded programs out has touched all of them,
// and they are not needed again before the next upgrade. Pages that are in use
// come back from the page cache when they are touched (MADV_DONTNEED on a
// private mapping of a file, madvise(2)).
func dropReadOnlyPages() error {
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return err
	}
	for _, m := range parseMappings(string(maps)) {
		if m.access != "r--p" || m.path != self || m.own != 0 {
			continue
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.start, m.end-m.start, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("give back %x-%x: %w", m.start, m.end, errno)
		}
	}
	return nil
}

// mapping is an entry of /proc/PID/smaps (proc_pid_smaps(5)).
type mapping struct {
	start, end   uintptr
	access, path string
	// own is how much of it, in KiB, is not the file's any more. What the
	// linker has relocated and then made read-only (RELRO) is such: it cannot
	// be read again.
	own uint64
}

// parseMappings reads the mappings that have a name and tell their own pages.
func parseMappings(smaps string) []mapping {
	var all []mapping
	var last mapping
	for line := range strings.Lines(smaps) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0:
		case fields[0] == "Anonymous:" && len(fields) == 3 && last.path != "":
			own, err := strconv.ParseUint(fields[1], 10, 64)
			if err == nil {
				last.own = own
				all = append(all, last)
			}
			last = mapping{}
		case !strings.HasSuffix(fields[0], ":"):
			last = parseMapping(fields)
		}
	}
	return all
}

func parseMapping(fields []string) mapping {
	if len(fields) < 6 {
		return mapping{}
	}
	from, to, ok := strings.Cut(fields[0], "-")
	start, err := strconv.ParseUint(from, 16, 64)
	end, err2 := strconv.ParseUint(to, 16, 64)
	if !ok || err != nil || err2 != nil || start >= end {
		return mapping{}
	}
	return mapping{start: uintptr(start), end: uintptr(end), access: fields[1], path: strings.TrimSuffix(strings.Join(fields[5:], " "), " (deleted)")}
}
