package orphan

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Sandboxes is a runtime that lists its sandboxes.
type Sandboxes interface {
	ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error)
}

// Ready lists the sandboxes that have a running process of their own: a holder, or the pause container of an earlier
// version.
func Ready(ctx context.Context, s Sandboxes) (ids []string, err error) {
	list, err := s.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{
		State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}}})
	if err != nil {
		return nil, err
	}
	for _, box := range list.Items {
		ids = append(ids, box.Id)
	}
	return ids, nil
}

// End ends the shims of a runtime that have neither a ready sandbox nor a process of a pod. It returns their process
// IDs. program is the file name of shims, up to a version. address is the name of the runtime in the arguments of its
// shims. sandboxes are those that are ready. Call it while no sandbox starts. It continues after an error, and returns
// all errors.
func End(program, address string, sandboxes []string) (ended []int, err error) {
	return end("shim", func(process int) bool { return isOrphan(process, program, address, sandboxes) })
}

// EndHolders ends the holders of a program whose sandbox is not ready, such as one whose record is damaged. It returns
// their process IDs. Call it while no sandbox starts. It continues after an error, and returns all errors.
func EndHolders(program string, sandboxes []string) (ended []int, err error) {
	return end("holder", func(process int) bool {
		args := arguments(process)
		return len(args) > 1 && args[0] == program && !slices.Contains(sandboxes, args[1])
	})
}

// end ends the processes of a kind that are orphans.
func end(kind string, orphaned func(process int) bool) (ended []int, err error) {
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
		if orphaned(process) {
			failed = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
			ended = append(ended, process)
		}
		if failed = errors.Join(failed, unix.Close(fd)); failed != nil {
			err = errors.Join(err, fmt.Errorf("end %s %d: %w", kind, process, failed))
		}
	}
	return ended, err
}

// arguments returns the arguments of a process, or nil if it has ended.
func arguments(process int) []string {
	line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(process), "cmdline"))
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimRight(string(line), "\x00"), "\x00")
}

func isOrphan(process int, program, address string, sandboxes []string) bool {
	dir := filepath.Join("/proc", strconv.Itoa(process))
	args := arguments(process)
	if args == nil {
		return false
	}
	id, ok := shimOf(args, program, address)
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
