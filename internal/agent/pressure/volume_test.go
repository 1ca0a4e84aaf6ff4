package pressure

import (
	"log/slog"
	"testing"

	"github.com/berth-run/berth/internal/node/eviction/storage"
)

func TestEmptyDirsHaveNoProjectsWithTheFeatureGateOff(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	for walk, want := range map[bool]bool{false: true, true: false} {
		kind := EmptyDir(t.TempDir(), storage.Mode{Walk: walk}, nil, log)
		if got := kind.Quotas.Projects != nil; got != want {
			t.Errorf("walk %t: projects %t, want %t", walk, got, want)
		}
	}
}
