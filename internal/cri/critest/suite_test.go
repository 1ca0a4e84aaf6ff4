package critest_test

import (
	"testing"

	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/cri/critest"
)

func TestFake(t *testing.T) {
	critest.Suite(t, func(t *testing.T) critest.Env {
		return critest.Env{
			Client: critest.NewFake(t).Client(cri.Options{}),
			Image:  critest.FakeImage,
			Logs:   t.TempDir(),
			Events: true,
		}
	})
}
