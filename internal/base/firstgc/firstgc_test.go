package firstgc

import (
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/berth-run/berth/internal/base/eventually"
)

// childEnv is set in the process that this test starts, because the collections of a test program itself come when
// the testing package wants them.
const childEnv = "BERTH_TEST_FIRSTGC"

var garbage []byte

func TestFirstCollection(t *testing.T) {
	if os.Getenv(childEnv) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFirstCollection$", "-test.v")
		cmd.Env = append(os.Environ(), childEnv+"=1", "GOGC=")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	collections := func() uint32 {
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return s.NumGC
	}
	before := collections()
	litter(8)
	if now := collections(); now != before {
		t.Errorf("%d collections with 8 MiB", now-before)
	}
	litter(32)
	if collections() == before {
		t.Error("no collection with 40 MiB")
	}
	// The runtime calls the cleanup a moment after the collection.
	eventually.True(t, "Go's default percentage", func() bool {
		now := debug.SetGCPercent(later)
		debug.SetGCPercent(now)
		return now == later
	})
}

func litter(mib int) {
	for range mib * 16 {
		garbage = make([]byte, 1<<16)
	}
}

func TestChosenPercentageStays(t *testing.T) {
	t.Setenv("GOGC", "50")
	before := debug.SetGCPercent(50)
	defer debug.SetGCPercent(before)
	if delay() || debug.SetGCPercent(50) != 50 {
		t.Error("it replaced the percentage of the environment")
	}
}
