package runtime

import (
	"context"
	"errors"
	"log/slog"
	goruntime "runtime"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/sirupsen/logrus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-run/berth/internal/base/librarylog"
)

// forwardLogs forwards containerd's log, which goes to logrus's process-wide logger, to the agent's log.
//
// These records become debug: containerd's info messages, since they are about its internals; calls that their callers
// cancelled, or that were for something that is gone; and everything after ctx has ended, since containerd then logs
// errors about connections that it has just closed.
//
// A fatal error calls fatal and ends the goroutine that logged it. It does not end the process.
func forwardLogs(ctx context.Context, to *slog.Logger, fatal func()) {
	librarylog.Logrus(to, logHook{to: to, ended: ctx.Err})
	logrus.StandardLogger().ExitFunc = func(int) {
		fatal()
		goruntime.Goexit()
	}
}

// logHook forwards logrus entries to slog.
type logHook struct {
	to    *slog.Logger
	ended func() error
}

// Levels implements logrus.Hook: the hook gets the entries of all levels.
func (logHook) Levels() []logrus.Level { return logrus.AllLevels }

// Fire implements logrus.Hook: it writes one entry.
func (h logHook) Fire(entry *logrus.Entry) error {
	level := slogLevel(entry.Level, entry.Message)
	err, _ := entry.Data[logrus.ErrorKey].(error)
	if errdefs.IsNotFound(err) && entry.Message == "failed to recover sandbox state" { // a sandbox from before a reboot
		level = slog.LevelDebug
	}
	// The answer to a call is its caller's to report: the agent asks for a sandbox that it has just removed.
	switch code := status.Code(err); {
	case h.ended() != nil, errors.Is(err, context.Canceled), code == codes.Canceled, code == codes.NotFound:
		level = slog.LevelDebug
	}
	h.to.LogAttrs(context.Background(), level, entry.Message, librarylog.Attrs(entry)...)
	return nil
}

// slogLevel is the level of a containerd message in the agent's log.
func slogLevel(level logrus.Level, message string) slog.Level {
	switch message {
	case "using async mode for boltdb", // package records copies the database
		"hugetlb cgroup controller is absent. skipping huge pages limits": // the agent says so at its start
		return slog.LevelDebug
	case "failed check for fsverity support", // true of most file systems; content is verified when it is read
		"failed to query shim pids, keeping shim registered", // a sandbox without containers
		"GetContainerEvents failed, error",                   // its client or package watcher has ended it
		"failed sending message on channel",                  // a shim exited without reading its last answer
		"warnings while cleaning up dead shim":               // at every removal: runc deletes a container twice
		return slog.LevelDebug
	}
	// These messages contain the ID of a sandbox, or a name. Unless a comment says more, the sandbox was removed while
	// one of its events was still being delivered, or its record was deleted before it.
	for _, begin := range []string{
		"failed to get sandbox runtime handler",
		"Invalid file ", // a link to the files of a sandbox (package sandbox)
		"Failed to get podSandbox status for container event",
		"failed to delete sandbox metadata from store",
		"PullImage ", // the caller reports the answer to a failed pull
	} {
		if strings.HasPrefix(message, begin) {
			return slog.LevelDebug
		}
	}
	return librarylog.Level(level)
}
