package headstart

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/berth-run/berth/internal/base/wake"
)

const (
	// hold is how long after Expect a process may still be moved without a wait.
	hold = 60 * time.Millisecond
	// again is the time between two writes. The kernel's next wait begins about 15 ms after the last one.
	again = 8 * time.Millisecond
)

// Headstart keeps moves of processes between cgroups fast for a moment.
type Headstart struct{ expected wake.Signal }

// New makes a Headstart.
func New() *Headstart { return &Headstart{wake.New()} }

// Expect says that a process will be moved to another cgroup soon. It returns at once.
func (h *Headstart) Expect() { h.expected.Wake() }

// Run works until ctx ends. It costs nothing while nothing is expected. If it cannot work, moves are slow.
func (h *Headstart) Run(ctx context.Context) error {
	for {
		select {
		case <-h.expected.C():
		case <-ctx.Done():
			return nil
		}
		// The process may have been moved since the last time.
		file, err := own("/proc/self/cgroup", "/sys/fs/cgroup")
		for until := time.Now().Add(hold); err == nil && time.Now().Before(until); {
			if err = touch(file); err != nil {
				break
			}
			select {
			case <-h.expected.C():
				until = time.Now().Add(hold)
			case <-time.After(again):
			case <-ctx.Done():
				return nil
			}
		}
	}
}

// touch moves this process to the cgroup where it is.
func touch(file string) error {
	procs, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, _ = procs.WriteString("0") // the kernel has waited, also if it refuses the move
	return procs.Close()
}

// own returns the cgroup.procs of this process in one hierarchy. list is the content of proc_pid_cgroup(5), and mounts
// the directory of hierarchies.
func own(list, mounts string) (string, error) {
	text, err := os.ReadFile(list)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		file := filepath.Join(mounts, strings.TrimPrefix(fields[1], "name="), fields[2], "cgroup.procs")
		if _, err := os.Stat(file); err == nil {
			return file, nil
		}
	}
	return "", fmt.Errorf("find the cgroup of this process below %s: none of those in %s is there", mounts, list)
}
