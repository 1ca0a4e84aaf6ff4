package netdump

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// tries is how often Complete asks. While many pods start, devices and addresses change all the time.
const tries = 20

// Complete calls list until its result is complete. The kernel marks an answer in which entries may be missing, because
// one has changed meanwhile (NLM_F_DUMP_INTR, netlink(7)). After 20 such answers Complete returns the last one, with
// netlink.ErrDumpInterrupted.
func Complete[T any](list func() ([]T, error)) ([]T, error) {
	all, err := list()
	for i := 1; i < tries && errors.Is(err, netlink.ErrDumpInterrupted); i++ {
		all, err = list()
	}
	return all, err
}
