package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// ticks per second of the process times in /proc: USER_HZ, always 100 to user space.
const ticks = 100

// idle measures the agent's process while pods run and nothing happens.
func idle(ctx context.Context, b *berthSide, pods int, d time.Duration) (idleCost, error) {
	c := idleCost{Pods: pods}
	if _, err := b.start(ctx, "idle", pods, 1, 0); err != nil {
		return c, err
	}
	select { // what follows the start has to settle: garbage, write-back
	case <-ctx.Done():
		return c, ctx.Err()
	case <-time.After(15 * time.Second):
	}
	pid := b.cmd.Process.Pid
	before, err := cpu(pid)
	if err != nil {
		return c, err
	}
	begin := time.Now()
	select {
	case <-ctx.Done():
		return c, ctx.Err()
	case <-time.After(d):
	}
	after, err := cpu(pid)
	if err != nil {
		return c, err
	}
	c.Seconds = time.Since(begin).Seconds()
	c.CPUPercent = float64(after-before) / ticks / c.Seconds * 100
	if c.RSSMB, c.PrivateMB, err = memory(pid); err != nil {
		return c, err
	}
	return c, b.remove(ctx, "idle", pods)
}

// cpu is the user and system time of a process in ticks (proc_pid_stat(5)).
func cpu(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("read /proc/%d/stat: %d fields", pid, len(fields))
	}
	user, err := strconv.ParseInt(fields[11], 10, 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseInt(fields[12], 10, 64)
	return user + system, err
}

// memory is the resident and the private memory of a process in MB
// (/proc/PID/smaps_rollup).
func memory(pid int) (rss, private float64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 3 {
			continue
		}
		kb, err := strconv.ParseFloat(fields[1], 64)
		if err != nil {
			continue // the header
		}
		switch fields[0] {
		case "Rss:":
			rss = kb * 1024 / 1e6
		case "Private_Clean:", "Private_Dirty:":
			private += kb * 1024 / 1e6
		}
	}
	return rss, private, nil
}
