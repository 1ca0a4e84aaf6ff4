package status

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/berth-run/berth/internal/base/logfile"
	"github.com/berth-run/berth/internal/base/poll"
	"github.com/berth-run/berth/internal/base/safepath"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/record/podlog"
)

// Bounds of one termination message, as documented in the Kubernetes API.
const (
	maxFileMessage = 4096
	maxLogMessage  = 2048
	maxLogLines    = 80
)

// terminationMessage reads the message of an exited container: from the file at path if that is not "", or from the end
// of its log if the container asks for that.
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
	if !messageInLog(run) {
		return ""
	}
	var end lastBytes
	err := awaitWriters(run.LogPath)
	if err == nil {
		err = podlog.Read(context.Background(), run.LogPath, podlog.Options{Tail: new(int64(maxLogLines))}, &end)
	}
	if err != nil {
		return fmt.Sprintf("Error on reading termination message from logs: %v", err)
	}
	return string(end)
}

// messageInLog reports whether the end of its log is the message of a container that has written no message. A
// container that could not be started has no log of its own.
func messageInLog(run pod.ContainerStatus) bool {
	return run.TerminationFromLogs && run.ExitCode != 0 && run.Reason != "ContainerCannotRun" && run.LogPath != ""
}

// needsRead reports whether a file has to be read for the message of a container.
func needsRead(run pod.ContainerStatus, path string) bool { return path != "" || messageInLog(run) }

// awaitWriters returns when no process has the log open for writing any more, or when that is not known. It also
// returns after 200 ms. Runtimes report the end of a container without waiting for the process that copies its last
// output into the log. That takes some milliseconds.
func awaitWriters(path string) error {
	f, err := safepath.File(path, logfile.Depth)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // rotation has renamed it, or the caller reports the error
	}
	if err != nil {
		return err
	}
	defer f.Close()
	pace := poll.Pace{First: 2 * time.Millisecond, Limit: 200 * time.Millisecond}
	pace.Until(func() bool { return !logfile.Written(f) })
	return nil
}

// lastBytes keeps the end of what is written to it.
type lastBytes []byte

func (l *lastBytes) Write(p []byte) (int, error) {
	all := append(*l, p...)
	*l = all[max(0, len(all)-maxLogMessage):]
	return len(p), nil
}

// messageDepth is how many parts at the end of a message file's path a container could have replaced: the directory and
// the file itself.
const messageDepth = 2

// readEnd returns the last n bytes of a file. It opens nothing but a plain file, since the container could have put
// anything in its place.
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
