package firstgc

import (
	"os"
	"runtime"
	"runtime/debug"
)

const (
	// first is the percentage until the first collection. Go collects a heap of 4 MiB times percentage / 100, so the
	// first one comes at 16 MiB.
	first = 400
	// later is Go's default. A program that gets that far is no short command.
	later = 100
)

// A variable is set before main, and by the order of import paths before most packages of libraries are initialised.
var _ = delay()

// delay delays the first collection, and returns whether it did: the user may have chosen a percentage with GOGC.
func delay() bool {
	if os.Getenv("GOGC") != "" {
		return false
	}
	debug.SetGCPercent(first)
	runtime.AddCleanup(new([64]byte), func(int) {
		// The agent may have chosen another percentage meanwhile.
		if now := debug.SetGCPercent(later); now != first {
			debug.SetGCPercent(now)
		}
	}, 0)
	return true
}
