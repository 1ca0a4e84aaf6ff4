package stats

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/cgroupfile"
	"github.com/berth-run/berth/internal/base/usage"
)

type sample = usage.Sample

// ProcessesOf counts the processes of a cgroup and of the cgroups below it. A cgroup that is gone has none.
func ProcessesOf(g cgroupfile.Group) (count int64, err error) {
	dir, ok := g.Dir("pids")
	if !ok {
		if dir, ok = g.Dir("memory"); !ok {
			return 0, errors.New("count processes: the cgroup has no directory")
		}
	}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "cgroup.procs" {
			return err
		}
		text, err := os.ReadFile(path)
		count += int64(bytes.Count(text, []byte("\n")))
		return err
	})
	if err != nil && !gone(err) && !errors.Is(err, unix.ENODEV) {
		return count, fmt.Errorf("count processes: %w", err)
	}
	return count, nil
}

// work are the processes in a cgroup, without the cgroups below it.
type work struct {
	processes int
	first     int // a process id, 0 if there is none
	// files and sockets are the open files of all processes, and the sockets among them.
	files, sockets int
	// maxFiles is the soft limit of open files of the first process: -1 without a limit, 0 if it is unknown.
	maxFiles float64
}

// workOf reads the processes of a cgroup. Files of a process that ends meanwhile do not count.
func workOf(host string, g cgroupfile.Group) (w work) {
	dir, ok := g.Dir("pids")
	if !ok {
		if dir, ok = g.Dir("cpu"); !ok {
			return w
		}
	}
	f, err := os.Open(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return w
	}
	defer func() { _ = f.Close() }() // it was opened for reading only
	for lines := bufio.NewScanner(f); lines.Scan(); w.processes++ {
		pid, err := strconv.Atoi(lines.Text())
		if err != nil {
			continue
		}
		files, sockets := openFiles(filepath.Join(host, "proc", lines.Text(), "fd"))
		w.files, w.sockets = w.files+files, w.sockets+sockets
		if w.first == 0 {
			w.first, w.maxFiles = pid, maxFiles(filepath.Join(host, "proc", lines.Text(), "limits"))
		}
	}
	return w
}

// openFiles counts the open files of a process, and the sockets among them, see proc_pid_fd(5).
func openFiles(dir string) (files, sockets int) {
	f, err := os.Open(dir)
	if err != nil {
		return 0, 0
	}
	defer func() { _ = f.Close() }() // it was opened for reading only
	names, _ := f.Readdirnames(-1)   // the names that were read count
	for _, name := range names {
		target, err := os.Readlink(filepath.Join(dir, name))
		if err != nil {
			continue
		}
		files++
		if strings.HasPrefix(target, "socket:") {
			sockets++
		}
	}
	return files, sockets
}

// maxFiles reads the soft limit of open files from proc_pid_limits(5).
func maxFiles(path string) float64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		values, ok := strings.CutPrefix(line, "Max open files")
		fields := strings.Fields(values)
		if !ok || len(fields) == 0 {
			continue
		}
		if fields[0] == "unlimited" {
			return -1
		}
		n, _ := strconv.ParseFloat(fields[0], 64) // 0 if it is no number
		return n
	}
	return 0
}

// gone reports whether an error means that the measured thing no longer exists.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) }
