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
	// hold is how long after Expect a process can move without a wait.
	hold = 60 * time.Millisecond
	// again is the time between two writes. About 15 ms after the last write, the next one would wait again.
	again = 8 * time.Millisecond
)

// Headstart keeps moves of processes between cgroups fast for a moment.
type Headstart struct{ expected wake.Signal }

// New makes a Headstart.
func New() *Headstart { return &Headstart{wake.New()} }

// Expect announces that a process will soon move to another cgroup. It returns at once.
func (h *Headstart) Expect() { h.expected.Wake() }

// Run keeps moves fast after each Expect, until ctx ends. It costs nothing while no move is expected. If its writes
// fail, moves are only slower.
func (h *Headstart) Run(ctx context.Context) error {
	for {
		select {
		case <-h.expected.C():
		case <-ctx.Done():
			return nil
		}
		// This process may have moved since the last time.
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

// touch moves this process into the cgroup that it is in.
func touch(file string) error {
	procs, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, _ = procs.WriteString("0") // the kernel has waited, also if it refuses the move
	return procs.Close()
}

// own returns the cgroup.procs of this process in one hierarchy. list is the path of a file as in proc_pid_cgroup(5).
// mounts is the directory where the hierarchies are mounted.
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
	return "", fmt.Errorf("find the cgroup of this process below %s: no hierarchy in %s is mounted there", mounts, list)
}
