package runtime

import (
	"context"
	"errors"
	"io"
	"log/slog"
	goruntime "runtime"
	"strings"

	"github.com/sirupsen/logrus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// forwardLogs sends what containerd logs, which is to logrus's process-wide logger, to ours. What
// containerd finds worth an info is debug here: it is about its own inside. So are calls whose
// callers left, and everything once ctx ends, since containerd complains then about what it just
// closed. A fatal error ends the goroutine it happens in and goes to fatal instead of ending the
// process.
func forwardLogs(ctx context.Context, to *slog.Logger, fatal func()) {
	logger := logrus.StandardLogger()
	logger.SetOutput(io.Discard)
	logger.SetFormatter(discardFormat{})
	logger.SetLevel(logrus.WarnLevel)
	if to.Enabled(ctx, slog.LevelDebug) {
		// Not lower: shims inherit the level, and open a debug socket each at debug.
		logger.SetLevel(logrus.InfoLevel)
	}
	logger.ReplaceHooks(logrus.LevelHooks{})
	logger.AddHook(logHook{to: to, ended: ctx.Err})
	logger.ExitFunc = func(int) {
		fatal()
		goruntime.Goexit()
	}
}

// logHook is the bridge from logrus to slog.
type logHook struct {
	to    *slog.Logger
	ended func() error
}

// Levels is every level.
func (logHook) Levels() []logrus.Level { return logrus.AllLevels }

// Fire writes one entry.
func (h logHook) Fire(entry *logrus.Entry) error {
	attrs := make([]slog.Attr, 0, len(entry.Data))
	for key, value := range entry.Data {
		attrs = append(attrs, slog.Any(key, value))
	}
	level := slogLevel(entry.Level, entry.Message)
	err, _ := entry.Data[logrus.ErrorKey].(error)
	if h.ended() != nil || errors.Is(err, context.Canceled) || status.Code(err) == codes.Canceled {
		level = slog.LevelDebug
	}
	h.to.LogAttrs(context.Background(), level, entry.Message, attrs...)
	return nil
}

// slogLevel is the level of a containerd message in our log.
func slogLevel(level logrus.Level, message string) slog.Level {
	switch message {
	case "failed check for fsverity support", // most file systems: content is verified when it is read
		"failed sending message on channel",    // a shim left without reading the answer to its last event
		"warnings while cleaning up dead shim": // every removal: runc is asked again to delete what it deleted
		return slog.LevelDebug
	}
	// These name the sandbox: it was removed while an event of it was under way, or its record went first.
	for _, begin := range []string{
		"failed to get sandbox runtime handler",
		"Failed to get podSandbox status for container event",
		"failed to delete sandbox metadata from store",
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

// discardFormat spares logrus the rendering of lines that nobody reads.
type discardFormat struct{}

// Format renders nothing.
func (discardFormat) Format(*logrus.Entry) ([]byte, error) { return nil, nil }
