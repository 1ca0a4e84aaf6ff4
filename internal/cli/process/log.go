package process

import (
	"fmt"
	"io"
	"log/slog"
)

// debugVerbosity is the lowest klog level that shows debug lines, as users of the kubelet expect.
const debugVerbosity = 4

// Logger returns a logger for lines of this level and above. The format is text or json.
func Logger(w io.Writer, format string, least slog.Level) (*slog.Logger, error) {
	v := verbose{least: least, level: &slog.LevelVar{}}
	v.level.Set(least)
	o := &slog.HandlerOptions{Level: v.level}
	switch format {
	case "text":
		v.Handler = slog.NewTextHandler(w, o)
	case "json":
		v.Handler = slog.NewJSONHandler(w, o)
	default:
		return nil, fmt.Errorf("--log-format %q is unknown", format)
	}
	return slog.New(v), nil
}

// verbose is a handler whose level can change at run time.
type verbose struct {
	slog.Handler
	level *slog.LevelVar
	least slog.Level
}

// Verbosity returns a function that changes the level of a Logger and of all loggers derived from it, as
// klog's -v does. A verbosity of 4 or more shows debug lines. A lower one restores the level that the
// logger was created with.
func Verbosity(l *slog.Logger) func(v int) {
	h, ok := l.Handler().(verbose)
	return func(v int) {
		switch {
		case !ok:
		case v >= debugVerbosity:
			h.level.Set(min(slog.LevelDebug, h.least))
		default:
			h.level.Set(h.least)
		}
	}
}
