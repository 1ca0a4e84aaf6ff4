package files

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/api/answer"
	"github.com/berth-run/berth/internal/api/server"
	"github.com/berth-run/berth/internal/api/stream"
	"github.com/berth-run/berth/internal/base/archive"
	"github.com/berth-run/berth/internal/cri"
)

// Files reads and writes the files of containers through /proc/PID/root of their first process. It needs no
// program in the image, and sees mounted volumes.
type Files struct {
	CRI *cri.Client
	// Runtime is the runtime's name for error messages.
	Runtime string
}

// errEnded is the error of a container that does not run any more.
var errEnded = answer.BadRequest("the container has ended", "wait until it runs again, or read its log")

// process opens the root directory of a running container. owner is the user and group of the container's process. New
// files will belong to them.
func (x Files) process(ctx context.Context, id string) (root *os.File, owner archive.Owner, err error) {
	pid, err := x.pid(ctx, id)
	if err != nil {
		return nil, owner, err
	}
	dir, err := os.Open("/proc/" + strconv.Itoa(pid))
	if err != nil {
		return nil, owner, err
	}
	defer dir.Close()
	at := "/proc/self/fd/" + strconv.Itoa(int(dir.Fd()))
	status, err := os.ReadFile(at + "/status")
	if err == nil {
		owner, err = ownerOf(status)
	}
	if err == nil {
		root, err = os.OpenFile(at+"/root", unix.O_PATH|unix.O_DIRECTORY, 0)
	}
	if err != nil {
		return nil, owner, err
	}
	// The open directory belongs to one process for good. But the process id may have been reused before it
	// was opened, so ask again.
	if now, err := x.pid(ctx, id); err != nil || now != pid {
		return nil, owner, errors.Join(errEnded, err, root.Close())
	}
	return root, owner, nil
}

// pid returns the id of the container's first process. containerd and CRI-O report it in the verbose part
// of a status.
func (x Files) pid(ctx context.Context, id string) (int, error) {
	r, err := x.CRI.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		return 0, err
	}
	if r.GetStatus().GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return 0, errEnded
	}
	var info struct {
		PID int `json:"pid"`
	}
	if err := json.Unmarshal([]byte(r.Info["info"]), &info); err != nil || info.PID <= 0 {
		return 0, answer.Next(fmt.Errorf("the runtime %s does not report the container's process", x.Runtime),
			`copy with "berth exec" and the image's tar instead`)
	}
	return info.PID, nil
}

// ownerOf returns the effective user and group ids of a process from its status file, see
// proc_pid_status(5).
func ownerOf(status []byte) (o archive.Owner, err error) {
	for line := range bytes.Lines(status) {
		fields := bytes.Fields(line)
		if len(fields) < 3 {
			continue
		}
		switch string(fields[0]) {
		case "Uid:":
			o.UID, err = strconv.Atoi(string(fields[2]))
		case "Gid:":
			o.GID, err = strconv.Atoi(string(fields[2]))
		}
		if err != nil {
			return o, fmt.Errorf("read the owner of a process: %w", err)
		}
	}
	return o, nil
}

// Pack implements server.Files.
func (x Files) Pack(ctx context.Context, p *corev1.Pod, container, path string, w io.Writer) error {
	root, _, err := x.process(ctx, stream.ContainerID(p, container))
	if err != nil {
		return err
	}
	defer root.Close()
	return missingPath(archive.PackIn(ctx, root, path, w))
}

// Unpack implements server.Files.
func (x Files) Unpack(ctx context.Context, p *corev1.Pod, t server.FileTarget, r io.Reader) (skipped []string,
	err error) {
	root, owner, err := x.process(ctx, stream.ContainerID(p, t.Container))
	if err != nil {
		return nil, err
	}
	defer root.Close()
	skipped, err = archive.UnpackIn(root, t.Path, t.Name, &owner, r)
	return skipped, missingPath(err)
}

// missingPath turns a missing path into a bad request, because the user chose the path.
func missingPath(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return answer.BadRequest(err.Error(), "give a path that exists, as the container's processes see it")
	}
	return err
}
