package proc

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of the CPU times in /proc. User space always sees 100 ticks a second (USER_HZ).
const tick = time.Second / 100

// Time is the CPU time of a process, user and system together.
type Time struct {
	Own      time.Duration
	Children time.Duration // children that have ended and were waited for, and their descendants
}

// CPU reads the CPU time of a process from /proc/PID/stat (proc_pid_stat(5)).
func CPU(pid int) (Time, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Time{}, err
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	var ticks [4]int64 // utime, stime, cutime, cstime
	if len(fields) < 11+len(ticks) {
		return Time{}, fmt.Errorf("read /proc/%d/stat: %d fields", pid, len(fields))
	}
	for i := range ticks {
		if ticks[i], err = strconv.ParseInt(fields[11+i], 10, 64); err != nil {
			return Time{}, fmt.Errorf("read /proc/%d/stat: %w", pid, err)
		}
	}
	return Time{Own: time.Duration(ticks[0]+ticks[1]) * tick, Children: time.Duration(ticks[2]+ticks[3]) * tick}, nil
}

// PSS returns the proportional set size of a process in MB: its own memory, and its share of the memory that it uses
// together with other processes (/proc/PID/smaps_rollup).
func PSS(pid int) (float64, error) {
	var pss float64
	err := rollup(pid, func(field string, mb float64) {
		if field == "Pss:" {
			pss = mb
		}
	})
	return pss, err
}

// Memory returns the resident memory of a process in MB. private is the part that only this process uses and that no
// file backs (/proc/PID/smaps_rollup).
func Memory(pid int) (rss, private float64, err error) {
	err = rollup(pid, func(field string, mb float64) {
		switch field {
		case "Rss:":
			rss = mb
		case "Private_Dirty:":
			private = mb
		}
	})
	return rss, private, err
}

// rollup calls yield with each field of a process's smaps_rollup.
func rollup(pid int, yield func(field string, mb float64)) error {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 3 {
			continue
		}
		if kb, err := strconv.ParseFloat(fields[1], 64); err == nil { // no number is in the header
			yield(fields[0], kb*1024/1e6)
		}
	}
	return nil
}
