package runtime

import (
	"context"
	"errors"
	"io"
	"log/slog"
	goruntime "runtime"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/sirupsen/logrus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// forwardLogs forwards containerd's log, which goes to logrus's process-wide logger, to the agent's log.
//
// These records become debug: containerd's info messages, since they are about its internals; calls that their callers
// cancelled, or that were for something that is gone; and everything after ctx has ended, since containerd then logs
// errors about connections that it has just closed.
//
// A fatal error calls fatal and ends the goroutine that logged it. It does not end the process.
func forwardLogs(ctx context.Context, to *slog.Logger, fatal func()) {
	logger := logrus.StandardLogger()
	logger.SetOutput(io.Discard)
	logger.SetFormatter(discardFormat{})
	logger.SetLevel(logrus.WarnLevel)
	if to.Enabled(ctx, slog.LevelDebug) {
		// Not debug: shims inherit the level, and at debug each opens a debug socket.
		logger.SetLevel(logrus.InfoLevel)
	}
	logger.ReplaceHooks(logrus.LevelHooks{})
	logger.AddHook(logHook{to: to, ended: ctx.Err})
	logger.ExitFunc = func(int) {
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
	attrs := make([]slog.Attr, 0, len(entry.Data))
	for key, value := range entry.Data {
		attrs = append(attrs, slog.Any(key, value))
	}
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
	h.to.LogAttrs(context.Background(), level, entry.Message, attrs...)
	return nil
}

// slogLevel is the level of a containerd message in the agent's log.
func slogLevel(level logrus.Level, message string) slog.Level {
	switch message {
	case "hugetlb cgroup controller is absent. skipping huge pages limits": // the agent says so at its start
		return slog.LevelDebug
	case "failed check for fsverity support", // true of most file systems; content is verified when it is read
		"failed to query shim pids, keeping shim registered", // a sandbox without containers
		"failed sending message on channel",                  // a shim exited without reading its last answer
		"warnings while cleaning up dead shim":               // at every removal: runc deletes a container twice
		return slog.LevelDebug
	}
	// These messages contain the ID of a sandbox. Unless a comment says more, it was removed while one of its events
	// was still being delivered, or its record was deleted before it.
	for _, begin := range []string{
		"failed to get sandbox runtime handler",
		"Invalid file ", // a link to the files of a sandbox (package sandbox)
		"Failed to get podSandbox status for container event",
		"failed to delete sandbox metadata from store",
		"GetContainerEvents failed", // the client closed its stream, or package watcher ended it
	} {
		if strings.HasPrefix(message, begin) {
			return slog.LevelDebug
		}
	}
	switch {
	case level <= logrus.ErrorLevel:
		return slog.LevelError
	case level == logrus.WarnLevel:
		return slog.LevelWarn
	default:
		return slog.LevelDebug
	}
}

// discardFormat renders nothing, since logHook does not use logrus's text.
type discardFormat struct{}

// Format implements logrus.Formatter.
func (discardFormat) Format(*logrus.Entry) ([]byte, error) { return nil, nil }
