package former

import (
	"slices"
	"testing"

	"github.com/berth-run/berth/internal/agent/engine/endpoint"
	"github.com/berth-run/berth/internal/base/checkpoint/checkpointtest"
)

// FuzzRuntimes reads the endpoints of former runtimes. No endpoint is empty: the agent would choose a runtime for it,
// and end the pods in the chosen one.
func FuzzRuntimes(f *testing.F) {
	checkpointtest.Fuzz(f, checkpointtest.File{
		Name: "runtimes.json", Version: 1,
		Seeds: []string{`["unix:///run/containerd/containerd.sock","embedded"]`, `["embedded",null]`, `[]`},
		Read: func(t *testing.T, dir string) (state, report string) {
			all, err := load(dir)
			if slices.Contains(others(all, endpoint.Embedded), "") {
				t.Errorf("an empty endpoint was read: %q", all)
			}
			return checkpointtest.Show(append([]string{}, all...)), checkpointtest.Text(err)
		},
	})
}
