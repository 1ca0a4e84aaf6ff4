package netdump

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// tries is how often Repeat asks. While many pods start, devices and addresses change all the time.
const tries = 20

// Complete calls list until its result is complete: see Repeat. After 20 incomplete results it returns the last one,
// with netlink.ErrDumpInterrupted.
func Complete[T any](list func() ([]T, error)) (all []T, err error) {
	err = Repeat(func() (err error) {
		all, err = list()
		return err
	})
	return all, err
}

// Repeat calls act, which reads a list of the kernel, until the list is complete. The kernel marks an answer
// that may lack entries, because one has changed meanwhile (NLM_F_DUMP_INTR, netlink(7)). After 20 such answers Repeat
// returns netlink.ErrDumpInterrupted.
func Repeat(act func() error) error {
	err := act()
	for i := 1; i < tries && errors.Is(err, netlink.ErrDumpInterrupted); i++ {
		err = act()
	}
	return err
}
