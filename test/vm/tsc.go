package main

import (
	"fmt"
	"time"
)

// rateOfTSC returns the option that tells the guest's kernel the rate of its TSC, which qemu takes from the host's. The
// guest would measure it while it boots, beside timer interrupts that are late on a busy host: its clock ran up to 17
// times too fast then, and all its deadlines passed early.
func rateOfTSC() string {
	if cycles() == 0 {
		return ""
	}
	const apart = 50 * time.Millisecond
	begin, from := readTSC()
	time.Sleep(apart)
	end, to := readTSC()
	return fmt.Sprintf(" tsc_early_khz=%d", (to-from)*uint64(time.Millisecond)/uint64(end.Sub(begin)))
}

// readTSC reads the TSC and the clock at nearly the same moment. The reading that took the least of some is returned,
// because the process may lose its CPU between the two.
func readTSC() (at time.Time, count uint64) {
	const tries = 20
	least := time.Hour
	for range tries {
		before := time.Now()
		now := cycles()
		if took := time.Since(before); took < least {
			least, at, count = took, before, now
		}
	}
	return at, count
}
