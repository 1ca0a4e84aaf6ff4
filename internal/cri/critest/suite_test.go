package critest_test

import (
	"testing"

	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/cri/critest"
	"github.com/berth-run/berth/internal/cri/critest/fake"
)

func TestFake(t *testing.T) {
	critest.Suite(t, func(t *testing.T) critest.Env {
		return critest.Env{
			Client: fake.New(t).Client(cri.Options{}),
			Image:  fake.Image,
			Logs:   t.TempDir(),
			Events: true,
		}
	})
}
