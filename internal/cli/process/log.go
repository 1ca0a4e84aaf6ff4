package process

import (
	"fmt"
	"io"
	"log/slog"
)

// debugVerbosity is from which of klog's levels on debug lines are logged, as users
// of a kubelet are used to.
const debugVerbosity = 4

// Logger logs lines of at least a level in a format, text or json.
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

// verbose is a handler whose level can be changed while it is used.
type verbose struct {
	slog.Handler
	level *slog.LevelVar
	least slog.Level
}

// Verbosity changes the level of a Logger, and of all that were made of it, as
// klog's -v does: 4 and more is debug, less the level that it was made with.
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
