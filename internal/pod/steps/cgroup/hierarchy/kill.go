package hierarchy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// killTries is how often the processes of a cgroup are killed before giving up: they may fork between listing and
	// killing.
	killTries = 5
	// killWait is how long the kernel gets to end killed processes.
	killWait = time.Second
)

// Kill ends every process in a cgroup.
func (t *Tree) Kill(ctx context.Context, n Name) error {
	for range killTries {
		pids, err := t.pids(n)
		if err != nil || len(pids) == 0 {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := t.killOnce(n, pids); err != nil {
			return err
		}
	}
	pids, err := t.pids(n)
	if err != nil || len(pids) == 0 {
		return err
	}
	return fmt.Errorf("kill processes %v in cgroup %s: they still exist after %d times SIGKILL", pids, n.Cgroupfs(),
		killTries)
}

// killOnce kills the processes and waits for their end. It holds them by file descriptor, so that it cannot hit a new
// process with a reused number.
func (t *Tree) killOnce(n Name, pids []int) error {
	var held []unix.PollFd
	defer func() {
		for _, h := range held {
			_ = unix.Close(int(h.Fd))
		}
	}()
	number := map[int32]int{}
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) { // it has ended, or is a thread
			continue
		}
		if err != nil {
			return fmt.Errorf("open process %d: %w", pid, err)
		}
		held = append(held, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
		number[int32(fd)] = pid
	}
	// A process that is still listed was in the cgroup when it was opened.
	now, err := t.pids(n)
	if err != nil {
		return err
	}
	if t.unified && t.killAll(n) == nil {
		return waitEnd(held)
	}
	for _, h := range held {
		if !slices.Contains(now, number[h.Fd]) {
			continue
		}
		if err := unix.PidfdSendSignal(int(h.Fd), unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("kill process %d: %w", number[h.Fd], err)
		}
	}
	return waitEnd(held)
}

// killAll writes cgroup.kill, which no fork can escape (Linux 5.14).
func (t *Tree) killAll(n Name) error {
	paths, err := t.Paths(n)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(paths[""], "cgroup.kill"), []byte("1"), 0)
}

func waitEnd(held []unix.PollFd) error {
	until := time.Now().Add(killWait)
	for len(held) > 0 {
		left := time.Until(until)
		if left <= 0 {
			return nil // the next attempt lists the remaining processes
		}
		_, err := unix.Poll(held, int(left.Milliseconds())+1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for killed processes: %w", err)
		}
		live := held[:0:0]
		for _, h := range held {
			if h.Revents == 0 {
				live = append(live, h)
			}
		}
		held = live
	}
	return nil
}
