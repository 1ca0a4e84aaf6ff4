package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of the process times in /proc: USER_HZ is always 100 to user space.
const tick = time.Second / 100

// cpuTime of a process, user and system together.
type cpuTime struct {
	own      time.Duration
	children time.Duration // those that have ended and were waited for, with theirs
}

// cpu reads /proc/PID/stat (proc_pid_stat(5)).
func cpu(pid int) (cpuTime, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return cpuTime{}, err
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	var ticks [4]int64 // utime, stime, cutime, cstime
	if len(fields) < 11+len(ticks) {
		return cpuTime{}, fmt.Errorf("read /proc/%d/stat: %d fields", pid, len(fields))
	}
	for i := range ticks {
		if ticks[i], err = strconv.ParseInt(fields[11+i], 10, 64); err != nil {
			return cpuTime{}, fmt.Errorf("read /proc/%d/stat: %w", pid, err)
		}
	}
	return cpuTime{own: time.Duration(ticks[0]+ticks[1]) * tick, children: time.Duration(ticks[2]+ticks[3]) * tick}, nil
}
