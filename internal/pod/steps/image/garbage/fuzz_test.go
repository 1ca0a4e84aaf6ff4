package garbage

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"github.com/berth-run/berth/internal/base/checkpoint/checkpointtest"
)

// FuzzLedger reads the ledger of images, and then an image is imported.
func FuzzLedger(f *testing.F) {
	checkpointtest.Fuzz(f, checkpointtest.File{
		Name: "images.json", Version: 1,
		Seeds: []string{
			`{"sha256:1":{"firstSeen":"2026-03-01T12:00:00Z","lastUsed":"2026-03-01T13:00:00Z","imported":true}}`,
		},
		Read: func(t *testing.T, dir string) (state, report string) {
			var log bytes.Buffer
			c := New(Options{Dir: dir, Now: func() time.Time { return time.Unix(1, 0) },
				Log: slog.New(slog.NewTextHandler(&log, nil))})
			if err := c.Load(); err != nil {
				t.Fatal(err)
			}
			state = checkpointtest.Show(c.ledger)
			other := New(Options{Dir: t.TempDir(), Now: c.opts.Now, Log: c.opts.Log})
			other.ledger = c.ledger
			if err := other.Imported("sha256:2"); err != nil {
				t.Error(err)
			}
			return state, log.String()
		},
	})
}
