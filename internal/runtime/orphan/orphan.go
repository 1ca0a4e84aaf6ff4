package orphan

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// End ends the shims of a runtime that have neither a sandbox nor a process of a pod, and returns their
// process IDs. program is the file name of shims, up to a version. address is the name of the runtime in the arguments
// of its shims. Call it while no sandbox starts. It continues after an error, and returns all errors.
func End(program, address string, sandboxes []string) (ended []int, err error) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		process, failed := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if failed != nil {
			continue
		}
		// The descriptor stays with this process when its number is given to another one.
		fd, failed := unix.PidfdOpen(process, 0)
		if failed != nil {
			continue // the process has ended
		}
		if isOrphan(process, program, address, sandboxes) {
			failed = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
			ended = append(ended, process)
		}
		if failed = errors.Join(failed, unix.Close(fd)); failed != nil {
			err = errors.Join(err, fmt.Errorf("end shim %d: %w", process, failed))
		}
	}
	return ended, err
}

func isOrphan(process int, program, address string, sandboxes []string) bool {
	dir := filepath.Join("/proc", strconv.Itoa(process))
	line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
	if err != nil {
		return false
	}
	id, ok := shimOf(strings.Split(strings.TrimRight(string(line), "\x00"), "\x00"), program, address)
	if !ok || slices.Contains(sandboxes, id) {
		return false
	}
	threads, err := filepath.Glob(filepath.Join(dir, "task", "*", "children"))
	if err != nil {
		return false
	}
	for _, thread := range threads {
		if children, err := os.ReadFile(thread); err != nil || len(children) > 0 {
			return false
		}
	}
	return len(threads) > 0
}

// shimOf reads the arguments of a process. ok reports whether it is a shim of the runtime with this address, and id is
// then the ID of the shim's sandbox.
func shimOf(args []string, program, address string) (id string, ok bool) {
	value := func(flag string) string {
		if at := slices.Index(args, flag); at >= 0 && at+1 < len(args) {
			return args[at+1]
		}
		return ""
	}
	id = value("-id")
	return id, strings.HasPrefix(filepath.Base(args[0]), program) && value("-address") == address && id != ""
}
