package podstatus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/berth-run/berth/internal/pod"
	"github.com/berth-run/berth/internal/podlog"
	"github.com/berth-run/berth/internal/safepath"
)

// Bounds of one termination message, those of the Kubernetes API documentation.
const (
	maxFileMessage = 4096
	maxLogMessage  = 2048
	maxLogLines    = 80
)

// terminationMessage reads what an exited container left: its file at path,
// which may be "", or the end of its log where it asked for that.
func terminationMessage(run pod.ContainerStatus, path string) string {
	if path != "" {
		data, err := readEnd(path, maxFileMessage)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return fmt.Sprintf("Error on reading termination log %s: %v", path, err)
		case len(data) > 0:
			return string(data)
		}
	}
	// A container that could not even be started has no log of its own.
	if !run.TerminationFromLogs || run.ExitCode == 0 || run.Reason == "ContainerCannotRun" || run.LogPath == "" {
		return ""
	}
	var end lastBytes
	if err := podlog.Read(context.Background(), run.LogPath, podlog.Options{Tail: new(int64(maxLogLines))}, &end); err != nil {
		return fmt.Sprintf("Error on reading termination message from logs: %v", err)
	}
	return string(end)
}

// lastBytes keeps the end of what is written to it.
type lastBytes []byte

func (l *lastBytes) Write(p []byte) (int, error) {
	all := append(*l, p...)
	*l = all[max(0, len(all)-maxLogMessage):]
	return len(p), nil
}

// messageDepth are the parts of a message file's path that a container may have
// had in reach: its directory and the file itself.
const messageDepth = 2

// readEnd returns the last n bytes of a file. The container could write to it,
// so nothing but a plain file is opened.
func readEnd(path string, n int64) ([]byte, error) {
	f, err := safepath.File(path, messageDepth)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-n), n))
}
