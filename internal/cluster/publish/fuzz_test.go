package publish

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/berth-run/berth/internal/base/checkpoint/checkpointtest"
)

func FuzzNote(f *testing.F) {
	checkpointtest.Fuzz(f, checkpointtest.File{
		Name: "sent.json", Version: 1,
		Seeds: []string{`{"sent":12}`},
		Read: func(_ *testing.T, dir string) (state, report string) {
			var log bytes.Buffer
			p := New(Options{Path: filepath.Join(dir, "sent.json"), Since: time.Unix(1, 0),
				Log: slog.New(slog.NewTextHandler(&log, nil))})
			return strconv.FormatUint(p.begin(), 10), log.String()
		},
	})
}
