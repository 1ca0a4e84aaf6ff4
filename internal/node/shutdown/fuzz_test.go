package shutdown

import (
	"path/filepath"
	"testing"

	"github.com/berth-run/berth/internal/base/checkpoint/checkpointtest"
)

func FuzzJournal(f *testing.F) {
	checkpointtest.Fuzz(f, checkpointtest.File{
		Name: "shutdown.json", Version: 1,
		Seeds: []string{
			`{"began":"2026-03-01T12:00:00Z","pods":[{"uid":"u1","namespace":"default","name":"web",` +
				`"grace":1000000000,` +
				`"at":"2026-03-01T12:00:01Z","gone":true}]}`,
		},
		Read: func(_ *testing.T, dir string) (state, report string) {
			j, err := Load(filepath.Join(dir, "shutdown.json"))
			return checkpointtest.Show(j), checkpointtest.Text(err)
		},
	})
}
