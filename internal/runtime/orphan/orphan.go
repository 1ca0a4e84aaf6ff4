package orphan

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	containerd "github.com/containerd/containerd/v2/client"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/process"
)

// CRI is a runtime that lists what it knows.
type CRI interface {
	ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error)
	ListContainers(context.Context, *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error)
}

// Runtime is a containerd that has started.
type Runtime struct {
	CRI    CRI
	Client *containerd.Client
	// Shim is the file name of its shims, up to a version. Address is its name in the arguments of its shims.
	Shim, Address string
	// Holder is the path of the program of its holders.
	Holder string
	Log    *slog.Logger
}

// Sweep ends the shims, holders and containers that the CRI plugin does not know. ctx has its namespace. Call it while
// no sandbox starts. What fails goes to the log.
func Sweep(ctx context.Context, r Runtime) {
	// A containerd that was killed before it wrote a shim's address knows the sandbox and not the shim. Such a sandbox
	// is not ready.
	sandboxes, err := ready(ctx, r.CRI)
	if err != nil {
		r.Log.Warn("cannot look for processes without a sandbox, retrying at the next start", "err", err)
		return
	}
	shims, err := endShims(r.Shim, r.Address, sandboxes)
	holders, failed := endHolders(r.Holder, sandboxes)
	if err = errors.Join(err, failed); err != nil {
		r.Log.Warn("cannot end processes without a sandbox, retrying at the next start", "err", err)
	}
	if len(shims)+len(holders) > 0 {
		r.Log.Info("processes without a sandbox ended", "shims", shims, "holders", holders)
	}
	containers, err := forget(ctx, r)
	if err != nil {
		r.Log.Warn("cannot remove containers that the CRI plugin does not know, retrying at the next start", "err", err)
	}
	if len(containers) > 0 {
		r.Log.Info("containers that the CRI plugin does not know removed", "containers", containers)
	}
}

// ready lists the sandboxes that have a running process of their own: a holder, or the pause container of an earlier
// version.
func ready(ctx context.Context, cri CRI) (ids []string, err error) {
	list, err := cri.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{
		State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}}})
	if err != nil {
		return nil, err
	}
	for _, box := range list.Items {
		ids = append(ids, box.Id)
	}
	return ids, nil
}

// forget removes the containers, with their root file systems, that are in containerd's records and that the CRI plugin
// could not load: a loss of power, or a disk that failed, took the file with their status. Nobody else would remove
// them. It returns their IDs. It continues after an error, and returns all errors.
func forget(ctx context.Context, r Runtime) (removed []string, err error) {
	list, err := r.CRI.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return nil, err
	}
	recorded, err := r.Client.Containers(ctx, `labels."io.cri-containerd.kind"==container`)
	if err != nil {
		return nil, err
	}
	for _, container := range recorded {
		id := container.ID()
		if slices.ContainsFunc(list.Containers, func(c *runtimeapi.Container) bool { return c.Id == id }) {
			continue
		}
		if failed := container.Delete(ctx, containerd.WithSnapshotCleanup); failed != nil {
			err = errors.Join(err, fmt.Errorf("container %s: %w", id, failed))
			continue
		}
		removed = append(removed, id)
	}
	return removed, err
}

// endShims ends the shims of a runtime that have neither a ready sandbox nor a process of a pod. It returns their
// process IDs. It continues after an error, and returns all errors.
func endShims(program, address string, sandboxes []string) (ended []int, err error) {
	return end("shim", func(id int) bool { return isOrphan(id, program, address, sandboxes) })
}

// endHolders ends the holders of a program whose sandbox is not ready, such as one whose record is damaged. It returns
// their process IDs. It continues after an error, and returns all errors.
func endHolders(program string, sandboxes []string) (ended []int, err error) {
	return end("holder", func(id int) bool {
		args := process.Arguments(id)
		return len(args) > 1 && args[0] == program && !slices.Contains(sandboxes, args[1])
	})
}

// end ends the processes of a kind that are orphans.
func end(kind string, orphaned func(id int) bool) (ended []int, err error) {
	all, err := process.IDs()
	if err != nil {
		return nil, err
	}
	for _, id := range all {
		if !orphaned(id) {
			continue
		}
		fd, failed := unix.PidfdOpen(id, 0)
		if failed != nil {
			continue // the process has ended
		}
		// Another process may have the ID by now. The descriptor stays with the one that it was opened for.
		if orphaned(id) {
			failed = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
			ended = append(ended, id)
		}
		if failed = errors.Join(failed, unix.Close(fd)); failed != nil {
			err = errors.Join(err, fmt.Errorf("end %s %d: %w", kind, id, failed))
		}
	}
	return ended, err
}

// isOrphan reports whether a process is a shim of the runtime that has neither a ready sandbox nor a child.
func isOrphan(id int, program, address string, sandboxes []string) bool {
	args := process.Arguments(id)
	if args == nil {
		return false
	}
	sandbox, ok := shimOf(args, program, address)
	if !ok || slices.Contains(sandboxes, sandbox) || !process.Executes(id) {
		return false
	}
	threads, err := filepath.Glob(process.Path(id, "task/*/children"))
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
