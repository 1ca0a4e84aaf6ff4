package cgroupfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Kill sends SIGKILL to all processes of a cgroup and of the cgroups below it, and does not wait for their end. On
// version 2 no fork can escape it (Linux 5.14). A cgroup that is gone has no processes.
func Kill(g Group) error {
	dir, ok := g.Dir("memory")
	if !ok {
		return errors.New("kill the processes of a cgroup: it has no directory")
	}
	if g.Unified {
		if os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0) == nil {
			return nil
		}
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "cgroup.procs" {
			return err
		}
		return killListed(path)
	})
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// killListed kills the processes in a file cgroup.procs. It holds each by a file descriptor and reads the file again,
// so that it cannot hit a new process with a reused number.
func killListed(path string) error {
	held := map[string]int{} // file descriptors by PID
	defer func() {
		for _, fd := range held {
			_ = unix.Close(fd)
		}
	}()
	pids, err := listed(path)
	if err != nil {
		return err
	}
	for _, text := range pids {
		pid, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		if fd, err := unix.PidfdOpen(pid, 0); err == nil {
			held[text] = fd
		} else if !errors.Is(err, unix.ESRCH) && !errors.Is(err, unix.EINVAL) { // it has ended
			return fmt.Errorf("open process %d: %w", pid, err)
		}
	}
	if pids, err = listed(path); err != nil {
		return err
	}
	for _, text := range pids {
		fd, ok := held[text]
		if !ok {
			continue
		}
		if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("kill process %s: %w", text, err)
		}
	}
	return nil
}

func listed(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	return strings.Fields(string(text)), err
}
