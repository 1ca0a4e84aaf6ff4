package librarylog

import (
	"context"
	"io"
	"log/slog"

	"github.com/sirupsen/logrus"
	"k8s.io/klog/v2"
)

// Forward sends the lines of klog and logrus to log, with the key component.
func Forward(log *slog.Logger) {
	klog.SetSlogLogger(log.With("component", "client-go"))
	to := log.With("component", "logrus")
	Logrus(to, hook{to})
}

// Logrus makes h the only reader of logrus's entries. They are warnings and errors, and also infos if log shows debug
// lines. Debug entries are left out: shims inherit the level, and at debug each opens a debug socket.
func Logrus(log *slog.Logger, h logrus.Hook) {
	logger := logrus.StandardLogger()
	logger.SetOutput(io.Discard)
	logger.SetFormatter(noText{})
	logger.SetLevel(logrus.WarnLevel)
	if log.Enabled(context.Background(), slog.LevelDebug) {
		logger.SetLevel(logrus.InfoLevel)
	}
	logger.ReplaceHooks(logrus.LevelHooks{})
	logger.AddHook(h)
}

// Level returns the level of an entry in the program's log. Infos of libraries are about their internals.
func Level(l logrus.Level) slog.Level {
	switch {
	case l <= logrus.ErrorLevel:
		return slog.LevelError
	case l == logrus.WarnLevel:
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

// Attrs returns the fields of an entry.
func Attrs(entry *logrus.Entry) []slog.Attr {
	attrs := make([]slog.Attr, 0, len(entry.Data))
	for key, value := range entry.Data {
		attrs = append(attrs, slog.Any(key, value))
	}
	return attrs
}

// hook forwards entries as they are.
type hook struct{ to *slog.Logger }

// Levels implements logrus.Hook.
func (hook) Levels() []logrus.Level { return logrus.AllLevels }

// Fire implements logrus.Hook.
func (h hook) Fire(entry *logrus.Entry) error {
	h.to.LogAttrs(context.Background(), Level(entry.Level), entry.Message, Attrs(entry)...)
	return nil
}

// noText renders nothing, since hooks do not use logrus's text.
type noText struct{}

// Format implements logrus.Formatter.
func (noText) Format(*logrus.Entry) ([]byte, error) { return nil, nil }
