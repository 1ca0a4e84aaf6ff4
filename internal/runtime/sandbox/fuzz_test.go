package sandbox

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/berth-run/berth/internal/base/boot"
	"github.com/berth-run/berth/internal/base/checkpoint/checkpointtest"
)

// FuzzHolders reads the record of a sandbox. A readable record never keeps the runtime from starting: a sandbox whose
// holder cannot be found has ended.
func FuzzHolders(f *testing.F) {
	current, err := boot.ID()
	if err != nil {
		f.Fatal(err)
	}
	of := func(pid int) string {
		return `{"key":"s1","value":{"Holder":{"PID":` + strconv.Itoa(pid) + `,"Start":1,"Boot":"` + current +
			`"},"Created":"2026-03-01T12:00:00Z","NetworkPath":"/run/netns/s1","CgroupParent":"/kubepods/podu1",` +
			`"Systemd":true,"Label":"system_u:system_r:container_t:s0:c1,c2"}}`
	}
	checkpointtest.Fuzz(f, checkpointtest.File{
		Name: "holders/s1.json", Version: 1,
		Seeds: []string{of(os.Getpid()), of(0), of(-1), of(1 << 40), `{"key":"s1","value":null}`},
		Read: func(t *testing.T, dir string) (state, report string) {
			var log bytes.Buffer
			c := New(Config{Root: filepath.Join(dir, "root"), State: dir,
				Log: slog.New(slog.NewTextHandler(&log, nil))})
			if err := c.recover(); err != nil {
				t.Fatal(err)
			}
			all := map[string]record{}
			for id, b := range c.boxes {
				all[id] = b.record
				if b.running() || b.exited.IsZero() {
					t.Errorf("sandbox %s runs without a holder: %+v", id, b.record)
				}
				if _, err := c.Status(t.Context(), id, true); err != nil {
					t.Error(err)
				}
			}
			return checkpointtest.Show(all), log.String()
		},
	})
}
