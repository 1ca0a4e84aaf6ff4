package process

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// IDs returns the IDs of all processes. Some may end meanwhile. It reads only the directory /proc: filepath.Glob with a
// pattern such as /proc/*/comm lists the files of each process too, which takes most of the time.
func IDs() ([]int, error) {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	defer func() { _ = proc.Close() }() // it is only read
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var ids []int
	for _, name := range names {
		if id, err := strconv.Atoi(name); err == nil {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// Arguments returns the arguments of a process, or nil if it has ended. The first one names its program.
func Arguments(id int) []string {
	line, err := os.ReadFile(Path(id, "cmdline"))
	if err != nil || len(line) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
}

// Parent returns the ID of the parent of a process, from proc_pid_status(5). The parent is 0 if this process does not
// see it.
func Parent(id int) (int, error) {
	text, err := os.ReadFile(Path(id, "status"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if parent, ok := strings.CutPrefix(line, "PPid:"); ok {
			return strconv.Atoi(strings.TrimSpace(parent))
		}
	}
	return 0, fmt.Errorf("find the parent of process %d: its status names none", id)
}

// Executes reports whether a process executes a program of its own. A child has the program and the arguments of its
// parent until then, so it looks like another instance of the parent. It is false for a process that has ended.
func Executes(id int) bool {
	args := Arguments(id)
	parent, err := Parent(id)
	return err == nil && args != nil && !slices.Equal(args, Arguments(parent))
}

// Path is the path of a file of a process, such as comm.
func Path(id int, file string) string { return filepath.Join("/proc", strconv.Itoa(id), file) }
