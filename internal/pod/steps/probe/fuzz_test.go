package probe

import (
	"log/slog"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/checkpoint/checkpointtest"
)

// FuzzVerdicts reads the verdicts of a pod's probes and shows them to the plan and the status.
func FuzzVerdicts(f *testing.F) {
	checkpointtest.Fuzz(f, checkpointtest.File{
		Name: "u1.json", Version: 2,
		Seeds: []string{
			`{"key":"u1","value":{"c1":{"readiness":{"verdict":1,"last":1,"run":3,"due":"2026-03-01T12:00:00Z"},` +
				`"liveness":{"verdict":2,"onHold":true,"due":"2026-03-01T12:00:00Z","message":"m"}}}}`,
			`{"key":"u1","value":{"c1":null}}`,
		},
		Read: func(_ *testing.T, dir string) (state, report string) {
			p := &Probes{files: newFiles(dir, slog.New(slog.DiscardHandler)), saved: map[types.UID]record{},
				stale: map[types.UID]bool{}}
			err := p.Load()
			return checkpointtest.Show(p.saved), checkpointtest.Text(err)
		},
	})
}
