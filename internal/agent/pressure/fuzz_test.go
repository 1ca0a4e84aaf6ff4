package pressure

import (
	"log/slog"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/checkpoint/checkpointtest"
	"github.com/berth-run/berth/internal/model/pod"
)

// FuzzVictims reads the evicted pods of an earlier agent. Each of them ends again because of an eviction, and gets a
// grace period that a pod can have.
func FuzzVictims(f *testing.F) {
	checkpointtest.Fuzz(f, checkpointtest.File{
		Name: "evictions.json", Version: 1,
		Seeds: []string{
			`{"u1":{"stop":{"Reason":"Evicted","Message":"low on memory","Grace":1000000000,"Exact":true,` +
				`"At":"2026-03-01T12:00:00Z","Remove":false},"condition":"MemoryPressure"}}`,
			`{"u1":null,"":{"stop":{"Reason":"Deleted","Grace":-1}}}`,
		},
		Read: func(t *testing.T, dir string) (state, report string) {
			p := New(Options{Path: filepath.Join(dir, "evictions.json"), Log: slog.New(slog.DiscardHandler)})
			err := p.Load()
			stops := map[types.UID]*pod.Stop{}
			for uid := range p.victims {
				s := p.Evicting(uid)
				if stops[uid] = s; s == nil || s.Reason != pod.StopEvicted || s.Grace != nil && *s.Grace < 0 {
					t.Errorf("pod %q ends as %+v", uid, s)
				}
			}
			return checkpointtest.Show(stops), checkpointtest.Text(err)
		},
	})
}
