package runtime

import (
	"bufio"
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
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return err
	}
	defer maps.Close()
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		m, ok := parseMapping(lines.Text())
		if !ok || m.access != "r--p" || m.path != self {
			continue
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.start, m.end-m.start, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("give back %x-%x: %w", m.start, m.end, errno)
		}
	}
	return nil
}

// mapping is a line of /proc/PID/maps (proc_pid_maps(5)).
type mapping struct {
	start, end   uintptr
	access, path string
}

func parseMapping(line string) (mapping, bool) {
	fields := strings.Fields(line)
	if len(fields) < 6 {
		return mapping{}, false
	}
	from, to, ok := strings.Cut(fields[0], "-")
	start, err := strconv.ParseUint(from, 16, 64)
	end, err2 := strconv.ParseUint(to, 16, 64)
	if !ok || err != nil || err2 != nil || start >= end {
		return mapping{}, false
	}
	return mapping{start: uintptr(start), end: uintptr(end), access: fields[1], path: strings.TrimSuffix(strings.Join(fields[5:], " "), " (deleted)")}, true
}
