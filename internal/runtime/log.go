package runtime

import (
	"context"
	"io"
	"log/slog"
	goruntime "runtime"

	"github.com/sirupsen/logrus"
)

// forwardLogs sends what containerd logs, which is to logrus's process-wide logger, to ours. What
// containerd finds worth an info is debug here: it is about its own inside. A fatal error ends the
// goroutine it happens in and goes to fatal instead of ending the process.
func forwardLogs(to *slog.Logger, fatal func()) {
	logger := logrus.StandardLogger()
	logger.SetOutput(io.Discard)
	logger.SetFormatter(discardFormat{})
	logger.SetLevel(logrus.WarnLevel)
	if to.Enabled(context.Background(), slog.LevelDebug) {
		// Not lower: shims inherit the level, and open a debug socket each at debug.
		logger.SetLevel(logrus.InfoLevel)
	}
	logger.ReplaceHooks(logrus.LevelHooks{})
	logger.AddHook(logHook{to: to})
	logger.ExitFunc = func(int) {
		fatal()
		goruntime.Goexit()
	}
}

// logHook is the bridge from logrus to slog.
type logHook struct{ to *slog.Logger }

// Levels is every level.
func (logHook) Levels() []logrus.Level { return logrus.AllLevels }

// Fire writes one entry.
func (h logHook) Fire(entry *logrus.Entry) error {
	attrs := make([]slog.Attr, 0, len(entry.Data))
	for key, value := range entry.Data {
		attrs = append(attrs, slog.Any(key, value))
	}
	h.to.LogAttrs(context.Background(), slogLevel(entry.Level), entry.Message, attrs...)
	return nil
}

// slogLevel is the level of a containerd message in our log.
func slogLevel(level logrus.Level) slog.Level {
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
